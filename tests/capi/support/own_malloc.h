/* Whether a program may put a malloc of its own before that of the library. */
#ifndef DISTAG_TESTS_CAPI_SUPPORT_OWN_MALLOC_H
#define DISTAG_TESTS_CAPI_SUPPORT_OWN_MALLOC_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_MALLOC 0 /* the sanitizer's is in its place */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 0
#endif
#endif
#ifndef HAS_OWN_MALLOC
#define HAS_OWN_MALLOC 1
#endif

#endif
