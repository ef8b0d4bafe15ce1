/* How many descriptors this process may have, from here on. */
#ifndef CAPI_SUPPORT_DESCRIPTOR_LIMIT_H
#define CAPI_SUPPORT_DESCRIPTOR_LIMIT_H

/* At most that many, or as many as the hard limit allows. 0 where that is refused. */
int set_descriptor_limit(int count);
/* So that `count` numbers are free, from the lowest on; what is open stays so. 0 where that is refused. */
int leave_descriptors_free(int count);

#endif /* CAPI_SUPPORT_DESCRIPTOR_LIMIT_H */
