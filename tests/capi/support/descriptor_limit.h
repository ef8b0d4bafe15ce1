/* Limits on how many descriptors this process may have, from here on. */
#ifndef CAPI_SUPPORT_DESCRIPTOR_LIMIT_H
#define CAPI_SUPPORT_DESCRIPTOR_LIMIT_H

/* At most this many, or as many as the hard limit allows. 0 if that is refused. */
int set_descriptor_limit(int count);
/* Leaves `count` numbers free, from the lowest on; open descriptors stay open. 0 if that is refused. */
int leave_descriptors_free(int count);

#endif /* CAPI_SUPPORT_DESCRIPTOR_LIMIT_H */
