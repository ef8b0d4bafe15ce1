/* The allocations of this process, and some of them refused. The program defines malloc and its kin, so everything in
 * the process asks here: distag, the C++ library (operator new), libsodium. */
#ifndef SHORTAGE_ALLOCATIONS_H
#define SHORTAGE_ALLOCATIONS_H

/* Allocations that are short: `count` of them, from number `first` on. first 0: none. */
typedef struct shortage {
  long first;
  long count;
  int is_limit; /* 0: all of these are refused; 1: those that need more bytes than were freed since the first */
  int is_of_this_thread; /* 1: only allocations of the thread that sets this are counted and refused */
} shortage;

/* Starts to count from 1. */
void allocations_count_from_here(const shortage *wanted);

/* Refuses none from here on. How many were asked for since counting began. */
long allocations_stop(void);
/* The same, if they were those of this thread alone. */
void allocations_stop_for_this_thread(void);

#endif /* SHORTAGE_ALLOCATIONS_H */
