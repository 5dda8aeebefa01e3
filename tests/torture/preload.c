/* Faults of the disk, of descriptors and of the clock, for a process that is started with this library in LD_PRELOAD.
 *
 * TORTURE_CONTROL names a file that is mapped, so that the faults change while the process runs; its layout is that of
 * `struct control` and of `preload.py`. Only files below TORTURE_HOME are affected, and not what the process prints, wherever
 * that goes: it says what became of the faults. TORTURE_LOG names a file that records
 * what has become durable in the folders `sessions` and `attachments`, a line each:
 *
 *     C path        a name was made     R old\tnew      a name was changed
 *     S bytes path  a file was synced   D path          a folder was synced
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_EIO, WRITE_ENOSPC, WRITE_SHORT, SYNC_EIO, OPEN_EMFILE, READ_EIO, DELAY, KINDS };

struct control {
    volatile uint32_t permille[KINDS];
    volatile uint32_t delay_microseconds;
    volatile int64_t clock_offset_seconds;
    volatile uint32_t injected[KINDS];
    volatile uint32_t dice;
};

static struct control *control;
static char home[PATH_MAX];
static size_t home_length;
static int record = -1;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t really_write(int descriptor, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(descriptor, bytes, count);
}

static int really_open(const char *path, int flags, mode_t mode) {
    REAL(int, "open64", const char *, int, ...);
    return real(path, flags, mode);
}

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("TORTURE_CONTROL"), *folder = getenv("TORTURE_HOME"), *log = getenv("TORTURE_LOG");
    if (!place || !folder) return;
    home_length = strlen(folder);
    if (home_length >= sizeof home) return;
    memcpy(home, folder, home_length + 1);
    int descriptor = really_open(place, O_RDWR | O_CLOEXEC, 0);
    if (descriptor < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) return;
    if (log) record = really_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    control = mapped;
}

/* Throw the dice for a fault; true if it happens now. */
static int happens(int kind) {
    if (!control || !control->permille[kind]) return 0;
    uint32_t number = __sync_add_and_fetch(&control->dice, 0x9e3779b9u);
    number ^= number >> 16; number *= 0x85ebca6bu; number ^= number >> 13; number *= 0xc2b2ae35u; number ^= number >> 16;
    if (number % 1000 >= control->permille[kind]) return 0;
    __sync_add_and_fetch(&control->injected[kind], 1);
    return 1;
}

static int below_home(const char *path) {
    return home_length && strncmp(path, home, home_length) == 0 && path[home_length] == '/';
}

/* Find the path of a descriptor; true if it is a file below the home. */
static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below_home(path);
}

static int ours(int descriptor) {
    char path[PATH_MAX];
    int before = errno, found = control && descriptor > STDERR_FILENO && path_of(descriptor, path);
    errno = before;
    return found;
}

static int is_recorded(const char *path) {
    const char *rest = path + home_length;
    return record >= 0 && below_home(path) && (strncmp(rest, "/sessions", 9) == 0 || strncmp(rest, "/attachments", 12) == 0);
}

static void note(const char *line, int length) {
    int before = errno;
    if (length > 0) really_write(record, line, length);
    errno = before;
}

static void wait_a_moment(void) {
    if (!happens(DELAY)) return;
    struct timespec left = {control->delay_microseconds / 1000000, control->delay_microseconds % 1000000 * 1000L};
    nanosleep(&left, NULL);
}

/* Fail a write, or return how many bytes of it may be written. */
static ssize_t admitted(int descriptor, size_t count) {
    if (!control || !ours(descriptor)) return count;
    wait_a_moment();
    if (happens(WRITE_EIO)) { errno = EIO; return -1; }
    if (happens(WRITE_ENOSPC)) { errno = ENOSPC; return -1; }
    if (count > 1 && happens(WRITE_SHORT)) return count / 2;
    return count;
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    ssize_t some = admitted(descriptor, count);
    return some < 0 ? some : really_write(descriptor, bytes, some);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    ssize_t some = admitted(descriptor, count);
    return some < 0 ? some : real(descriptor, bytes, some, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset) {
    return pwrite64(descriptor, bytes, count, offset);
}

ssize_t pread64(int descriptor, void *bytes, size_t count, off64_t offset) {
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    if (control && control->permille[READ_EIO] && ours(descriptor) && happens(READ_EIO)) { errno = EIO; return -1; }
    return real(descriptor, bytes, count, offset);
}

ssize_t pread(int descriptor, void *bytes, size_t count, off_t offset) {
    return pread64(descriptor, bytes, count, offset);
}

int ftruncate64(int descriptor, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    if (control && ours(descriptor) && happens(WRITE_EIO)) { errno = EIO; return -1; }
    return real(descriptor, length);
}

int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

static int synced(int descriptor, int (*real)(int)) {
    char path[PATH_MAX], line[PATH_MAX + 64];
    struct stat found;
    if (!control || !path_of(descriptor, path)) return real(descriptor);
    wait_a_moment();
    if (happens(SYNC_EIO)) { errno = EIO; return -1; }
    int known = is_recorded(path) && fstat(descriptor, &found) == 0;
    int result = real(descriptor);
    if (result == 0 && known) {
        if (S_ISDIR(found.st_mode)) note(line, snprintf(line, sizeof line, "D %s\n", path));
        else note(line, snprintf(line, sizeof line, "S %lld %s\n", (long long)found.st_size, path));
    }
    return result;
}

int fdatasync(int descriptor) { REAL(int, "fdatasync", int); return synced(descriptor, real); }

int fsync(int descriptor) { REAL(int, "fsync", int); return synced(descriptor, real); }

static int opened(const char *path, int flags, mode_t mode) {
    char line[PATH_MAX + 64];
    if (!control || !below_home(path)) return really_open(path, flags, mode);
    if (happens(OPEN_EMFILE)) { errno = EMFILE; return -1; }
    int known = (flags & O_CREAT) && is_recorded(path) && access(path, F_OK) != 0;
    int descriptor = really_open(path, flags, mode);
    if (descriptor >= 0 && known) note(line, snprintf(line, sizeof line, "C %s\n", path));
    return descriptor;
}

static mode_t mode_in(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_in(flags, rest);
    va_end(rest);
    return opened(path, flags | O_LARGEFILE, mode);
}

int rename(const char *old, const char *new) {
    REAL(int, "rename", const char *, const char *);
    char line[2 * PATH_MAX + 64];
    int result = real(old, new);
    if (result == 0 && control && is_recorded(new)) note(line, snprintf(line, sizeof line, "R %s\t%s\n", old, new));
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, time);
    if (control && result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += control->clock_offset_seconds;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    REAL(int, "gettimeofday", struct timeval *, void *);
    int result = real(time, zone);
    if (control && result == 0) time->tv_sec += control->clock_offset_seconds;
    return result;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
