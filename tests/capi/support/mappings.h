/* The memory mappings of this process, which the system bounds (vm.max_map_count). */
#ifndef DISTAG_TESTS_CAPI_SUPPORT_MAPPINGS_H
#define DISTAG_TESTS_CAPI_SUPPORT_MAPPINGS_H

/* The most mappings that a process may have; 0: not known, or too many to use up in a test. */
long mapping_limit(void);

/* Uses up all mappings that are left, each time it is called. False: it could not. */
int use_up_mappings(void);
void give_mappings_back(void);

#endif /* DISTAG_TESTS_CAPI_SUPPORT_MAPPINGS_H */
