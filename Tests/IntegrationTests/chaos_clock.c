// A wall clock that a test sets, for a process that loads this first (LD_PRELOAD): the file named
// by CHAOS_CLOCK holds how many seconds it differs, as one int. The monotonic clock stays as it is,
// and so does how long a wait for a moment of the wall clock takes, as when the kernel's is set.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const int none = 0;
static const volatile int *offset = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(int), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset = page;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!real_clock_gettime)
        real_clock_gettime =
            (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *time, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

/// What the kernel knows as that moment. One of the monotonic clock is not so far from zero.
static struct timespec real_moment(const struct timespec *until) {
    struct timespec moment = *until;
    if (moment.tv_sec > 1000000000) moment.tv_sec -= *offset;
    return moment;
}

static void *next(const char *name, const char *version) {
    return version ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
}

int pthread_cond_timedwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec moment = real_moment(until);
    return real(condition, mutex, &moment);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = next("cnd_timedwait", NULL);
    struct timespec moment = real_moment(until);
    return real(condition, mutex, &moment);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = next("sem_timedwait", NULL);
    struct timespec moment = real_moment(until);
    return real(semaphore, &moment);
}
