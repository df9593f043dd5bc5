// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device that does nothing, to measure what doing it costs: see README.md, and nothing.h for what
 * a program can ask of it.
 *
 * A pending I/O is a request. It is born in nothing_begin(), becomes known to the file in
 * nothing_submit(), waits for its turn (sequential dispatch) and for its time (delay), is handed to
 * where it is to complete, and ends in nothing_finish(), once and nowhere else.
 *
 * What keeps what alive: a request holds the file's state by a reference, and whoever waits for the
 * request (a thread, a kiocb, a command of io_uring) holds the open file, which holds the module. So
 * nothing is pending when the module is unloaded; what may still run then is the end of a callback
 * behind the line that told of the completion. nothing_exit() waits for that.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/aio.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

#include "nothing.h"

/* Settings in one word, so that the path which only completes inline reads one: 0 is that path. */
#define MODE(completion, dispatch)	((completion) | (dispatch) << 8)
#define MODE_COMPLETION(mode)		((mode) & 0xff)
#define MODE_DISPATCH(mode)		((mode) >> 8)

struct nothing_counters {
	u64 inlined;
	u64 pended;
	u64 completed;
	u64 cancelled;
	u64 nonblocking;
	u64 worker;
	u64 strayed;
};

struct nothing_file {
	struct kref references;
	/* Written under the lock while nothing is pending. */
	u32 mode;
	u32 bytes;
	u64 delay_ns;
	struct nothing_counters __percpu *counters;

	spinlock_t lock ____cacheline_aligned_in_smp;
	/* Requests whose turn has not come, in the order of issue. */
	struct list_head waiting;
	/* All others that are pending. */
	struct list_head served;
	/* Requests that exist, and such as are about to. */
	unsigned int pending;
	/* Of those in `served`, the ones that count against sequential dispatch. */
	unsigned int in_service;
};

enum nothing_kind {
	/* A thread waits in nothing_wait(), and frees the request. */
	KIND_WAITED_FOR,
	KIND_READ,
	KIND_COMMAND,
};

enum nothing_state {
	STATE_NEW,
	STATE_WAITING,
	STATE_TIMED,
	/* Handed to where it completes; nobody can stop it now. */
	STATE_HANDED,
};

struct nothing_request {
	struct nothing_file *file;
	struct list_head link;
	enum nothing_kind kind;
	enum nothing_state state;
	bool in_service;
	bool cancelled;
	/* The CPU that issued it. */
	int cpu;
	/* What the caller is told, in bytes or as an error. */
	ssize_t result;
	/* The process that issued it: a name to compare, never looked into. */
	fl_owner_t owner;
	union {
		struct completion done;
		struct kiocb *iocb;
		struct io_uring_cmd *command;
	};
	struct hrtimer timer;
	struct work_struct work;
	call_single_data_t call;
};

static struct kmem_cache *nothing_requests;
static struct workqueue_struct *nothing_workqueue;

/* ---- parameters ------------------------------------------------------------------- */

static const char *const completion_names[] = {
	[NOTHING_INLINE] = "inline",
	[NOTHING_TIMER] = "timer",
	[NOTHING_WORK] = "work",
	[NOTHING_OTHER_CPU] = "other-cpu",
};

static const char *const dispatch_names[] = {
	[NOTHING_PARALLEL] = "parallel",
	[NOTHING_SEQUENTIAL] = "sequential",
};

static unsigned int completion = NOTHING_INLINE;
static unsigned int dispatch = NOTHING_PARALLEL;
static unsigned int bytes;
static unsigned long long delay_ns;

static int set_completion(const char *text, const struct kernel_param *parameter)
{
	int found = sysfs_match_string(completion_names, text);

	if (found < 0)
		return found;
	WRITE_ONCE(completion, found);
	return 0;
}

static int get_completion(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%s\n", completion_names[READ_ONCE(completion)]);
}

static const struct kernel_param_ops completion_operations = {
	.set = set_completion,
	.get = get_completion,
};

static int set_dispatch(const char *text, const struct kernel_param *parameter)
{
	int found = sysfs_match_string(dispatch_names, text);

	if (found < 0)
		return found;
	WRITE_ONCE(dispatch, found);
	return 0;
}

static int get_dispatch(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%s\n", dispatch_names[READ_ONCE(dispatch)]);
}

static const struct kernel_param_ops dispatch_operations = {
	.set = set_dispatch,
	.get = get_dispatch,
};

module_param_cb(completion, &completion_operations, NULL, 0644);
MODULE_PARM_DESC(completion, "where an I/O completes: inline (default), timer, work, other-cpu");
module_param_cb(dispatch, &dispatch_operations, NULL, 0644);
MODULE_PARM_DESC(dispatch, "I/Os of an open file under way at a time: parallel (default), sequential");
module_param(bytes, uint, 0644);
MODULE_PARM_DESC(bytes, "bytes that a read brings at most (default 0)");
module_param(delay_ns, ullong, 0644);
MODULE_PARM_DESC(delay_ns, "from the beginning of a pending I/O to its completion (default 0, at most 1 s)");

/* The parameters as they are now; each is read by itself, so they may not fit together. */
static struct nothing_settings nothing_defaults(void)
{
	return (struct nothing_settings) {
		.completion = READ_ONCE(completion),
		.dispatch = READ_ONCE(dispatch),
		.bytes = READ_ONCE(bytes),
		.delay_ns = READ_ONCE(delay_ns),
	};
}

static int nothing_check(const struct nothing_settings *asked)
{
	if (asked->completion >= ARRAY_SIZE(completion_names) ||
	    asked->dispatch >= ARRAY_SIZE(dispatch_names) || asked->reserved)
		return -EINVAL;
	if (asked->delay_ns > (asked->completion == NOTHING_INLINE ? 0 : NOTHING_MOST_DELAY_NS))
		return -EINVAL;
	if (asked->completion == NOTHING_OTHER_CPU) {
		/* There, what completes an I/O may sleep, which no such interrupt may. */
		if (IS_ENABLED(CONFIG_PREEMPT_RT))
			return -EOPNOTSUPP;
		if (num_online_cpus() < 2)
			return -ENXIO;
	}
	return 0;
}

/* ---- requests --------------------------------------------------------------------- */

static void nothing_file_free(struct kref *references)
{
	struct nothing_file *nf = container_of(references, struct nothing_file, references);

	free_percpu(nf->counters);
	kfree(nf);
}

static void nothing_free(struct nothing_request *request)
{
	struct nothing_file *nf = request->file;

	kmem_cache_free(nothing_requests, request);
	kref_put(&nf->references, nothing_file_free);
}

/* The CPU after this one, or nr_cpu_ids if it is alone. */
static unsigned int nothing_other_cpu(int cpu)
{
	unsigned int other = cpumask_next(cpu, cpu_online_mask);

	if (other >= nr_cpu_ids)
		other = cpumask_first(cpu_online_mask);
	return other == cpu ? nr_cpu_ids : other;
}

static void nothing_hand_to_work(struct nothing_request *request)
{
	request->state = STATE_HANDED;
	/* If that CPU has gone meanwhile, the work is done on another. */
	queue_work_on(request->cpu, nothing_workqueue, &request->work);
}

static void nothing_arm(struct nothing_request *request, u64 delay)
{
	request->state = STATE_TIMED;
	hrtimer_start(&request->timer, ns_to_ktime(delay), HRTIMER_MODE_REL_PINNED);
}

/*
 * Interrupts the other CPU, which completes the request. False if that is this one, or there is none
 * any more.
 */
static bool nothing_interrupt(struct nothing_request *request)
{
	unsigned int other = nothing_other_cpu(request->cpu);

	if (other >= nr_cpu_ids || other == smp_processor_id() ||
	    smp_call_function_single_async(other, &request->call))
		return false;
	request->state = STATE_HANDED;
	return true;
}

/* The request's turn has come. Never ends it at once, so that it may be called from its end. */
static void nothing_start(struct nothing_file *nf, struct nothing_request *request)
{
	u32 where = MODE_COMPLETION(nf->mode);

	list_move_tail(&request->link, &nf->served);
	request->in_service = true;
	nf->in_service++;
	if (nf->delay_ns == 0) {
		if (where == NOTHING_WORK) {
			nothing_hand_to_work(request);
			return;
		}
		if (where == NOTHING_OTHER_CPU && nothing_interrupt(request))
			return;
	}
	nothing_arm(request, nf->delay_ns);
}

/* Starts whose turn it is. Under the lock. */
static void nothing_serve(struct nothing_file *nf)
{
	bool all = MODE_DISPATCH(nf->mode) == NOTHING_PARALLEL;
	struct nothing_request *next;

	while (all || nf->in_service == 0) {
		next = list_first_entry_or_null(&nf->waiting, struct nothing_request, link);
		if (!next)
			return;
		nothing_start(nf, next);
	}
}

static void nothing_command_done(struct io_uring_cmd *command, unsigned int issue_flags)
{
	struct nothing_request *request = *(struct nothing_request **)command->pdu;
	ssize_t result = request->result;

	nothing_free(request);
	/* Last: it lets the file go, and so the module. */
	io_uring_cmd_done(command, result, 0, issue_flags);
}

/* The end of every request. */
static void nothing_finish(struct nothing_request *request)
{
	struct nothing_file *nf = request->file;
	unsigned long flags;

	spin_lock_irqsave(&nf->lock, flags);
	list_del(&request->link);
	nf->pending--;
	if (request->in_service)
		nf->in_service--;
	/* Before the caller is told: whom it tells sees a count that holds. */
	if (request->cancelled)
		this_cpu_inc(nf->counters->cancelled);
	else
		this_cpu_inc(nf->counters->completed);
	nothing_serve(nf);
	spin_unlock_irqrestore(&nf->lock, flags);

	switch (request->kind) {
	case KIND_WAITED_FOR:
		/* Who waits frees the request, and may have done so when this returns. */
		complete(&request->done);
		break;
	case KIND_READ:
		request->iocb->ki_complete(request->iocb, request->result);
		/* Not before: nothing_cancel_read() finds it until the kiocb is out of reach. */
		nothing_free(request);
		break;
	case KIND_COMMAND:
		/* io_uring has no other way to complete a command from an interrupt. */
		io_uring_cmd_complete_in_task(request->command, nothing_command_done);
		break;
	}
}

static enum hrtimer_restart nothing_timer(struct hrtimer *timer)
{
	struct nothing_request *request = container_of(timer, struct nothing_request, timer);
	struct nothing_file *nf = request->file;
	bool here = false;
	unsigned long flags;

	spin_lock_irqsave(&nf->lock, flags);
	switch (MODE_COMPLETION(nf->mode)) {
	case NOTHING_WORK:
		nothing_hand_to_work(request);
		break;
	case NOTHING_OTHER_CPU:
		here = !nothing_interrupt(request);
		if (here && smp_processor_id() == request->cpu)
			this_cpu_inc(nf->counters->strayed);
		break;
	default:
		here = true;
		break;
	}
	request->state = STATE_HANDED;
	spin_unlock_irqrestore(&nf->lock, flags);
	if (here)
		nothing_finish(request);
	return HRTIMER_NORESTART;
}

static void nothing_work(struct work_struct *work)
{
	nothing_finish(container_of(work, struct nothing_request, work));
}

static void nothing_called(void *request)
{
	nothing_finish(request);
}

/*
 * An I/O begins. NULL: it is over, in the call. Else a request that must be submitted, or an error.
 * `asleep` says whether the caller will wait for it, `nonblocking` whether it may be put to sleep.
 */
static struct nothing_request *nothing_begin(struct nothing_file *nf, bool asleep, bool nonblocking)
{
	struct nothing_request *request = NULL;
	unsigned long flags;
	int error = 0;

	if (likely(READ_ONCE(nf->mode) == MODE(NOTHING_INLINE, NOTHING_PARALLEL))) {
		this_cpu_inc(nf->counters->inlined);
		goto count;
	}
	spin_lock_irqsave(&nf->lock, flags);
	if (MODE_COMPLETION(nf->mode) == NOTHING_INLINE) {
		/* Here the lock is what lets one at a time through. */
		this_cpu_inc(nf->counters->inlined);
		spin_unlock_irqrestore(&nf->lock, flags);
		goto count;
	}
	if (asleep && nonblocking)
		error = -EAGAIN;
	else if (nf->pending >= NOTHING_MOST_PENDING)
		error = -EBUSY;
	else
		nf->pending++;
	spin_unlock_irqrestore(&nf->lock, flags);
	if (error)
		return ERR_PTR(error);

	request = kmem_cache_alloc(nothing_requests, nonblocking ? GFP_NOWAIT | __GFP_NOWARN : GFP_KERNEL);
	if (!request) {
		spin_lock_irqsave(&nf->lock, flags);
		nf->pending--;
		spin_unlock_irqrestore(&nf->lock, flags);
		/* EAGAIN: io_uring tries again where it may sleep. */
		return ERR_PTR(nonblocking ? -EAGAIN : -ENOMEM);
	}
	kref_get(&nf->references);
	request->file = nf;
	INIT_LIST_HEAD(&request->link);
	request->state = STATE_NEW;
	request->in_service = false;
	request->cancelled = false;
	request->result = 0;
	request->owner = current->files;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&request->timer, nothing_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
#else
	hrtimer_init(&request->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
	request->timer.function = nothing_timer;
#endif
	INIT_WORK(&request->work, nothing_work);
	INIT_CSD(&request->call, nothing_called, request);
count:
	if (nonblocking)
		this_cpu_inc(nf->counters->nonblocking);
	if (current->flags & PF_IO_WORKER)
		this_cpu_inc(nf->counters->worker);
	return request;
}

/* Gives the request to the file. If nobody waits for it, it may be gone when this returns. */
static void nothing_submit(struct nothing_request *request)
{
	struct nothing_file *nf = request->file;
	unsigned long flags;

	spin_lock_irqsave(&nf->lock, flags);
	request->cpu = smp_processor_id();
	this_cpu_inc(nf->counters->pended);
	if (request->cancelled) {
		list_add_tail(&request->link, &nf->served);
		nothing_hand_to_work(request);
	} else {
		request->state = STATE_WAITING;
		list_add_tail(&request->link, &nf->waiting);
		nothing_serve(nf);
	}
	spin_unlock_irqrestore(&nf->lock, flags);
}

/*
 * Ends a request early, unless it is too late for that. It ends in a thread of the kernel, since who
 * cancels may hold locks that the end needs. Under the lock.
 */
static bool nothing_cancel(struct nothing_request *request)
{
	struct nothing_file *nf = request->file;

	switch (request->state) {
	case STATE_NEW:
		/* nothing_submit() sees it. */
		break;
	case STATE_WAITING:
		list_move_tail(&request->link, &nf->served);
		nothing_hand_to_work(request);
		break;
	case STATE_TIMED:
		/* Its callback waits for our lock if it has begun, and then it goes its way. */
		if (hrtimer_try_to_cancel(&request->timer) != 1)
			return false;
		nothing_hand_to_work(request);
		break;
	case STATE_HANDED:
		return false;
	}
	request->cancelled = true;
	request->result = -ECANCELED;
	return true;
}

/* Whether a process that closes a descriptor leaves this request behind. */
static bool nothing_left(struct nothing_request *request, fl_owner_t owner)
{
	/* A thread that waits is still there, or a signal has ended its wait. */
	return request->owner == owner && request->kind != KIND_WAITED_FOR;
}

/* Ends all requests, or those that one process leaves behind. */
static int nothing_cancel_all(struct nothing_file *nf, fl_owner_t owner)
{
	struct nothing_request *request, *next;
	unsigned long flags;
	int count = 0;

	spin_lock_irqsave(&nf->lock, flags);
	/* First who waits, so that none of them starts when one that is served ends. */
	list_for_each_entry_safe(request, next, &nf->waiting, link)
		if (!owner || nothing_left(request, owner))
			count += nothing_cancel(request);
	list_for_each_entry(request, &nf->served, link)
		if (!owner || nothing_left(request, owner))
			count += nothing_cancel(request);
	spin_unlock_irqrestore(&nf->lock, flags);
	return count;
}

/* Submits, and waits until it is over or a signal comes. */
static ssize_t nothing_wait(struct nothing_request *request)
{
	struct nothing_file *nf = request->file;
	ssize_t result;

	request->kind = KIND_WAITED_FOR;
	init_completion(&request->done);
	nothing_submit(request);
	if (wait_for_completion_interruptible(&request->done)) {
		bool cancelled;

		spin_lock_irq(&nf->lock);
		cancelled = nothing_cancel(request);
		spin_unlock_irq(&nf->lock);
		wait_for_completion(&request->done);
		if (cancelled)
			request->result = -ERESTARTSYS;
	}
	result = request->result;
	nothing_free(request);
	return result;
}

/* ---- file operations -------------------------------------------------------------- */

/* Linux AIO cancels: for io_cancel(2), and for a process that exits. It holds a lock of its own. */
static int nothing_cancel_read(struct kiocb *iocb)
{
	struct nothing_request *request = iocb->private;
	struct nothing_file *nf = request->file;
	unsigned long flags;
	bool cancelled;

	spin_lock_irqsave(&nf->lock, flags);
	cancelled = nothing_cancel(request);
	spin_unlock_irqrestore(&nf->lock, flags);
	return cancelled ? 0 : -EAGAIN;
}

static ssize_t nothing_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct nothing_file *nf = iocb->ki_filp->private_data;
	bool asleep = is_sync_kiocb(iocb);
	bool nonblocking = (iocb->ki_flags & IOCB_NOWAIT) ||
			   (asleep && (iocb->ki_filp->f_flags & O_NONBLOCK));
	size_t count = min_t(size_t, READ_ONCE(nf->bytes), iov_iter_count(to));
	struct nothing_request *request;
	ssize_t moved = 0;

	/* Now: the caller's memory is out of reach where a pending read completes. */
	if (count) {
		moved = iov_iter_zero(count, to);
		if (!moved)
			return -EFAULT;
	}
	request = nothing_begin(nf, asleep, nonblocking);
	if (!request)
		return moved;
	if (IS_ERR(request))
		return PTR_ERR(request);
	request->result = moved;
	if (asleep)
		return nothing_wait(request);
	request->kind = KIND_READ;
	request->iocb = iocb;
	/* Before it is submitted, as it may be gone afterwards. */
	if (iocb->ki_flags & IOCB_AIO_RW) {
		iocb->private = request;
		kiocb_set_cancel_fn(iocb, nothing_cancel_read);
	}
	nothing_submit(request);
	return -EIOCBQUEUED;
}

static int nothing_uring_cmd(struct io_uring_cmd *command, unsigned int issue_flags)
{
	struct nothing_file *nf = command->file->private_data;
	struct nothing_request *request;

	BUILD_BUG_ON(sizeof(request) > sizeof(command->pdu));
	if (command->cmd_op != NOTHING_DO)
		return -ENOTTY;
	request = nothing_begin(nf, false, issue_flags & IO_URING_F_NONBLOCK);
	if (!request)
		return 0;
	if (IS_ERR(request))
		return PTR_ERR(request);
	request->kind = KIND_COMMAND;
	request->command = command;
	*(struct nothing_request **)command->pdu = request;
	nothing_submit(request);
	return -EIOCBQUEUED;
}

static long nothing_do(struct file *file)
{
	struct nothing_request *request;

	request = nothing_begin(file->private_data, true, file->f_flags & O_NONBLOCK);
	if (!request)
		return 0;
	if (IS_ERR(request))
		return PTR_ERR(request);
	return nothing_wait(request);
}

static int nothing_apply(struct nothing_file *nf, const struct nothing_settings *asked)
{
	int error = nothing_check(asked);

	if (error)
		return error;
	spin_lock_irq(&nf->lock);
	if (nf->pending) {
		error = -EBUSY;
	} else {
		WRITE_ONCE(nf->mode, MODE(asked->completion, asked->dispatch));
		WRITE_ONCE(nf->bytes, asked->bytes);
		nf->delay_ns = asked->delay_ns;
	}
	spin_unlock_irq(&nf->lock);
	return error;
}

static long nothing_set(struct nothing_file *nf, const void __user *from)
{
	struct nothing_settings asked;

	if (copy_from_user(&asked, from, sizeof(asked)))
		return -EFAULT;
	return nothing_apply(nf, &asked);
}

static long nothing_get(struct nothing_file *nf, void __user *to)
{
	struct nothing_settings settings = {};

	spin_lock_irq(&nf->lock);
	settings.completion = MODE_COMPLETION(nf->mode);
	settings.dispatch = MODE_DISPATCH(nf->mode);
	settings.bytes = nf->bytes;
	settings.delay_ns = nf->delay_ns;
	spin_unlock_irq(&nf->lock);
	return copy_to_user(to, &settings, sizeof(settings)) ? -EFAULT : 0;
}

static long nothing_count(struct nothing_file *nf, void __user *to)
{
	struct nothing_counts counts = {};
	int cpu;

	/* Under the lock, under which those of pending I/O are written: so they agree. */
	spin_lock_irq(&nf->lock);
	for_each_possible_cpu(cpu) {
		struct nothing_counters *counters = per_cpu_ptr(nf->counters, cpu);

		counts.inlined += READ_ONCE(counters->inlined);
		counts.pended += READ_ONCE(counters->pended);
		counts.completed += READ_ONCE(counters->completed);
		counts.cancelled += READ_ONCE(counters->cancelled);
		counts.nonblocking += READ_ONCE(counters->nonblocking);
		counts.worker += READ_ONCE(counters->worker);
		counts.strayed += READ_ONCE(counters->strayed);
	}
	/* Not nf->pending: that has such as are not submitted yet, which nobody could cancel. */
	counts.pending = counts.pended - counts.completed - counts.cancelled;
	spin_unlock_irq(&nf->lock);
	return copy_to_user(to, &counts, sizeof(counts)) ? -EFAULT : 0;
}

static long nothing_ioctl(struct file *file, unsigned int number, unsigned long argument)
{
	struct nothing_file *nf = file->private_data;

	/* First, and by itself: this path is what is measured. */
	if (likely(number == NOTHING_DO))
		return nothing_do(file);
	switch (number) {
	case NOTHING_GET:
		return nothing_get(nf, (void __user *)argument);
	case NOTHING_SET:
		return nothing_set(nf, (const void __user *)argument);
	case NOTHING_COUNT:
		return nothing_count(nf, (void __user *)argument);
	case NOTHING_CANCEL:
		return nothing_cancel_all(nf, NULL);
	default:
		return -ENOTTY;
	}
}

static int nothing_open(struct inode *inode, struct file *file)
{
	struct nothing_settings defaults = nothing_defaults();
	struct nothing_file *nf;
	int error;

	nf = kzalloc(sizeof(*nf), GFP_KERNEL);
	if (!nf)
		return -ENOMEM;
	nf->counters = alloc_percpu(struct nothing_counters);
	if (!nf->counters) {
		kfree(nf);
		return -ENOMEM;
	}
	kref_init(&nf->references);
	spin_lock_init(&nf->lock);
	INIT_LIST_HEAD(&nf->waiting);
	INIT_LIST_HEAD(&nf->served);
	error = nothing_apply(nf, &defaults);
	if (error) {
		kref_put(&nf->references, nothing_file_free);
		return error;
	}
	file->private_data = nf;
	/* Reads never sleep if told not to: so io_uring calls them itself and asks no worker to. */
	file->f_mode |= FMODE_NOWAIT;
	return 0;
}

/*
 * A process closes a descriptor, maybe because it exits. As release() comes when nothing is pending any
 * more, this is where what it left pending is ended; else a long queue would hold the module for hours.
 */
static int nothing_flush(struct file *file, fl_owner_t owner)
{
	nothing_cancel_all(file->private_data, owner);
	return 0;
}

static int nothing_release(struct inode *inode, struct file *file)
{
	struct nothing_file *nf = file->private_data;

	kref_put(&nf->references, nothing_file_free);
	return 0;
}

static const struct file_operations nothing_operations = {
	.owner = THIS_MODULE,
	.open = nothing_open,
	.release = nothing_release,
	.flush = nothing_flush,
	.llseek = noop_llseek,
	.read_iter = nothing_read_iter,
	.unlocked_ioctl = nothing_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = nothing_uring_cmd,
};

static struct miscdevice nothing_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nothing",
	.mode = 0600,
	.fops = &nothing_operations,
};

/* ---- module ----------------------------------------------------------------------- */

static int __init nothing_init(void)
{
	struct nothing_settings defaults = nothing_defaults();
	int error = nothing_check(&defaults);

	if (error) {
		pr_err("these parameters do not go together, or not on this machine\n");
		return error;
	}
	nothing_requests = KMEM_CACHE(nothing_request, SLAB_HWCACHE_ALIGN | SLAB_ACCOUNT);
	if (!nothing_requests)
		return -ENOMEM;
	nothing_workqueue = alloc_workqueue("nothing", WQ_HIGHPRI, 0);
	if (!nothing_workqueue) {
		error = -ENOMEM;
		goto free_requests;
	}
	error = misc_register(&nothing_device);
	if (error)
		goto free_workqueue;
	return 0;

free_workqueue:
	destroy_workqueue(nothing_workqueue);
free_requests:
	kmem_cache_destroy(nothing_requests);
	return error;
}

static void __exit nothing_exit(void)
{
	misc_deregister(&nothing_device);
	/*
	 * Nothing is pending, but a callback may be between the line that told so and its end: one
	 * of the workqueue, one in an interrupt (timer, other CPU), or one that io_uring runs in a
	 * task, which may have been preempted there.
	 */
	destroy_workqueue(nothing_workqueue);
	synchronize_rcu();
	synchronize_rcu_tasks();
	kmem_cache_destroy(nothing_requests);
}

module_init(nothing_init);
module_exit(nothing_exit);

MODULE_DESCRIPTION("A device that does nothing, to measure what doing it costs");
MODULE_LICENSE("GPL");
