/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR MIT OR Apache-2.0) */
/*
 * /dev/nothing: what a program says to it.
 *
 * Every open file has settings of its own. They begin as the module's parameters are at the open,
 * and are changed with NOTHING_SET; so one program can have several modes open side by side, and a
 * program that knows nothing of this file is given a mode through the parameters.
 */
#ifndef NOTHING_H
#define NOTHING_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Where an I/O is completed. */
enum nothing_completion {
	/* In the call that issues it. It has no delay. */
	NOTHING_INLINE,
	/*
	 * Pending; in the interrupt of a timer, on the CPU that issued it, or, if it had to wait for its
	 * turn, where the one before completed.
	 */
	NOTHING_TIMER,
	/* Pending; in a thread of the kernel, on the CPU that issued it. */
	NOTHING_WORK,
	/* Pending; in an interrupt that is sent to another CPU. */
	NOTHING_OTHER_CPU,
};

/* How many I/Os of one open file are under way at a time. */
enum nothing_dispatch {
	/* All of them: each has its delay for itself. */
	NOTHING_PARALLEL,
	/* One, in the order of issue: the delay of the next begins when the one before is over. */
	NOTHING_SEQUENTIAL,
};

/* The longest delay, in nanoseconds. */
#define NOTHING_MOST_DELAY_NS	1000000000ULL
/* Most I/Os that are pending on one open file; one more fails with EBUSY. */
#define NOTHING_MOST_PENDING	65536U

struct nothing_settings {
	/* enum nothing_completion */
	__u32 completion;
	/* enum nothing_dispatch */
	__u32 dispatch;
	/* A read brings so many bytes (zeroes), or as many as were asked for if that is less. */
	__u32 bytes;
	/* 0. */
	__u32 reserved;
	/* From the beginning of the I/O to its completion. */
	__u64 delay_ns;
};

/*
 * Of one open file, since it was opened. What is said of pended I/O always agrees; the others are read
 * one after the other.
 */
struct nothing_counts {
	/* Completed in the call. */
	__u64 inlined;
	/* Taken to be completed later: completed + cancelled + pending. */
	__u64 pended;
	/* Pended, and completed with their result. */
	__u64 completed;
	/* Pended, and ended with ECANCELED, or by a signal (EINTR). */
	__u64 cancelled;
	/* Now pending. */
	__u64 pending;
	/* Of all: issued where the caller must not be put to sleep (IOCB_NOWAIT, IO_URING_F_NONBLOCK). */
	__u64 nonblocking;
	/* Of all: issued by a worker thread of io_uring. */
	__u64 worker;
	/* NOTHING_OTHER_CPU, but completed where it was, as no other CPU could be reached. */
	__u64 strayed;
};

#define NOTHING_MAGIC	0xDE

/*
 * The I/O that moves nothing: as a read in all else. Also the operation of IORING_OP_URING_CMD.
 * 0; EAGAIN (would have to wait, and the file is O_NONBLOCK); EBUSY, ECANCELED, EINTR, ENOMEM.
 */
#define NOTHING_DO	_IO(NOTHING_MAGIC, 0)
/* What is set. */
#define NOTHING_GET	_IOR(NOTHING_MAGIC, 1, struct nothing_settings)
/* EBUSY: I/O is pending. EINVAL: no such setting. EOPNOTSUPP: not on this kernel. ENXIO: one CPU only. */
#define NOTHING_SET	_IOW(NOTHING_MAGIC, 2, struct nothing_settings)
/* What happened. */
#define NOTHING_COUNT	_IOR(NOTHING_MAGIC, 3, struct nothing_counts)
/* Ends all that is pending on this open file with ECANCELED; the answer is how many. */
#define NOTHING_CANCEL	_IO(NOTHING_MAGIC, 4)

#endif
