// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Presents a plain file as a UBI volume to mtd-utils, so that its fsck.ubifs can check an image on a machine without UBI.
 * Loaded by LD_PRELOAD over the unchanged program; lab/fsck/volume.sh sets it up.
 *
 * LEB n is at n times the LEB size. Three kinds of calls are intercepted: stat reports the file as a character device, opens
 * below /sys/class/ubi go to a folder with the same layout, and the volume's ioctls work on the file. An unmapped LEB is
 * all 0xFF. It is not a UBI: an atomic LEB change only erases the LEB before it is written.
 *
 *   FAKEUBI_NODE  the file      FAKEUBI_LEB  bytes of a LEB      FAKEUBI_SYS  the folder that replaces sysfs
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mtd/ubi-user.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Device numbers of UBI's device 0 and its first volume, as volume.sh writes them into the files below FAKEUBI_SYS. */
#define UBI_MAJOR 246
#define VOLUME_MINOR 1

static int volume = -1;
static long leb_size, leb_count;
static const char *node, *sys;
/* LEBs mapped without content. */
static unsigned char *mapped;

static void init(void)
{
	struct stat status;

	if (node)
		return;
	node = getenv("FAKEUBI_NODE");
	sys = getenv("FAKEUBI_SYS");
	leb_size = getenv("FAKEUBI_LEB") ? atol(getenv("FAKEUBI_LEB")) : 0;
	if (!node || !sys || leb_size <= 0 || fstatat(AT_FDCWD, node, &status, 0)) {
		fprintf(stderr, "fakeubi: FAKEUBI_NODE, FAKEUBI_LEB and FAKEUBI_SYS must say what to show\n");
		_exit(125);
	}
	leb_count = status.st_size / leb_size;
	mapped = calloc(leb_count ? leb_count : 1, 1);
}

/* Translates a path below sysfs; buffer holds PATH_MAX bytes. */
static const char *redirected(const char *path, char *buffer)
{
	static const char class[] = "/sys/class/ubi", control[] = "/sys/class/misc/ubi_ctrl";

	init();
	if (!strncmp(path, class, sizeof(class) - 1))
		snprintf(buffer, 4096, "%s%s", sys, path + sizeof(class) - 1);
	else if (!strncmp(path, control, sizeof(control) - 1))
		snprintf(buffer, 4096, "%s/ubi_ctrl%s", sys, path + sizeof(control) - 1);
	else
		return path;
	return buffer;
}

static int any_stat(const char *path, struct stat *status)
{
	char buffer[4096];
	int code = fstatat(AT_FDCWD, redirected(path, buffer), status, 0);

	if (!code && !strcmp(path, node)) {
		status->st_mode = S_IFCHR | 0600;
		status->st_rdev = makedev(UBI_MAJOR, VOLUME_MINOR);
	}
	return code;
}

int stat(const char *path, struct stat *status)
{
	return any_stat(path, status);
}

int lstat(const char *path, struct stat *status)
{
	return any_stat(path, status);
}

/* On x86-64 the two have the same layout. */
int stat64(const char *path, struct stat64 *status)
{
	return any_stat(path, (struct stat *)status);
}

int lstat64(const char *path, struct stat64 *status)
{
	return any_stat(path, (struct stat *)status);
}

static int any_open(const char *path, int flags, int mode)
{
	char buffer[4096];
	const char *real = redirected(path, buffer);
	int is_volume = !strcmp(path, node), descriptor;

	/* Opening a device neither creates nor truncates it, and O_EXCL means exclusive use. */
	if (is_volume)
		flags &= ~(O_EXCL | O_TRUNC | O_CREAT);
	descriptor = openat(AT_FDCWD, real, flags, mode);
	if (is_volume && descriptor >= 0)
		volume = descriptor;
	return descriptor;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	int mode;

	va_start(rest, flags);
	mode = va_arg(rest, int);
	va_end(rest);
	return any_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	int mode;

	va_start(rest, flags);
	mode = va_arg(rest, int);
	va_end(rest);
	return any_open(path, flags, mode);
}

DIR *opendir(const char *path)
{
	static DIR *(*real)(const char *);
	char buffer[4096];

	if (!real)
		real = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
	return real(redirected(path, buffer));
}

static int is_blank(long leb)
{
	unsigned char *content = malloc(leb_size);
	ssize_t length = pread(volume, content, leb_size, (off_t)leb * leb_size), i;

	for (i = 0; i < length && content[i] == 0xff; i++)
		;
	free(content);
	return i >= length;
}

static int erase(long leb)
{
	unsigned char *content = malloc(leb_size);
	ssize_t written;

	memset(content, 0xff, leb_size);
	written = pwrite(volume, content, leb_size, (off_t)leb * leb_size);
	free(content);
	if (written == leb_size)
		return 0;
	errno = EIO;
	return -1;
}

static int volume_ioctl(unsigned long request, void *argument)
{
	/* All of these requests begin with the LEB's number. */
	long leb = request == UBI_IOCSETVOLPROP ? 0 : *(int32_t *)argument;

	if (leb < 0 || leb >= leb_count) {
		errno = EINVAL;
		return -1;
	}
	switch (request) {
	case UBI_IOCEBCH:
		mapped[leb] = 1;
		return erase(leb);
	case UBI_IOCEBUNMAP:
	case UBI_IOCEBER:
		mapped[leb] = 0;
		return erase(leb);
	case UBI_IOCEBMAP:
		mapped[leb] = 1;
		return 0;
	case UBI_IOCEBISMAP:
		return mapped[leb] || !is_blank(leb);
	case UBI_IOCSETVOLPROP:
		return 0;
	default:
		errno = ENOTTY;
		return -1;
	}
}

int ioctl(int descriptor, unsigned long request, ...)
{
	static int (*real)(int, unsigned long, ...);
	va_list rest;
	void *argument;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	init();
	if (descriptor >= 0 && descriptor == volume)
		return volume_ioctl(request, argument);
	if (!real)
		real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	return real(descriptor, request, argument);
}
