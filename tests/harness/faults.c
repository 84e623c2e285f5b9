/* A disk that fails when it is told to: preloaded into a server. The first integers of the
 * file that SNUG_FAULTS names say what each kind of call fails with, 0 for not at all:
 *
 *   0  writing to regular files
 *   1  syncing them, or folders
 *   2  making, opening for writing, renaming, removing names
 *   3  not 0: a sync does not return until it is 0
 *   4  reading from files that have no name any more takes so many milliseconds a call
 *   5  reading at a place of a regular file, as the disk tier does
 *
 * Sockets, pipes and the standard streams are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE, SYNC, NAME, HANG, SLOW, PLACE };
static volatile int *control;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SNUG_FAULTS");
    int fd = path ? REAL(open)(path, O_RDONLY) : -1;
    if (fd < 0) return;
    void *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
    close(fd);
}

static int is_file(int fd) {
    struct stat facts;
    return fd > 2 && !fstat(fd, &facts) && (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode));
}

static int fails(int what) {
    if (!control || !control[what]) return 0;
    errno = control[what];
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    return is_file(fd) && fails(WRITE) ? -1 : REAL(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_file(fd) && fails(WRITE) ? -1 : REAL(writev)(fd, parts, count);
}

int ftruncate64(int fd, off64_t length) {
    return is_file(fd) && fails(WRITE) ? -1 : REAL(ftruncate64)(fd, length);
}

ssize_t read(int fd, void *bytes, size_t count) {
    struct stat facts;
    if (control && control[SLOW] && fd > 2 && !fstat(fd, &facts) && S_ISREG(facts.st_mode) && !facts.st_nlink) {
        struct timespec while_it_reads = {control[SLOW] / 1000, control[SLOW] % 1000 * 1000000L};
        nanosleep(&while_it_reads, 0);
    }
    return REAL(read)(fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    return is_file(fd) && fails(PLACE) ? -1 : REAL(pread64)(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return is_file(fd) && fails(WRITE) ? -1 : REAL(pwrite64)(fd, bytes, count, at);
}

static void wait_for_disk(int fd) {
    struct timespec moment = {0, 5000000};
    while (control && is_file(fd) && control[HANG]) nanosleep(&moment, 0);
}

int fdatasync(int fd) {
    wait_for_disk(fd);
    return is_file(fd) && fails(SYNC) ? -1 : REAL(fdatasync)(fd);
}

int fsync(int fd) {
    wait_for_disk(fd);
    return is_file(fd) && fails(SYNC) ? -1 : REAL(fsync)(fd);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    return flags & (O_WRONLY | O_RDWR) && fails(NAME) ? -1 : REAL(open64)(path, flags, mode);
}

int rename(const char *from, const char *to) {
    return fails(NAME) ? -1 : REAL(rename)(from, to);
}

int unlink(const char *path) {
    return fails(NAME) ? -1 : REAL(unlink)(path);
}
