// A driver library (NVML) for tests: it has the functions that are called, and tells what
// the file named by PODYARD_FAKE_NVML says at the time. Lines of that file:
//
//	init RETURN                    what nvmlInit_v2 answers; 0 is well
//	count RETURN                   what nvmlDeviceGetCount_v2 answers
//	driver VERSION
//	cuda NUMBER                    12080 is 12.8
//	gpu RETURN|UUID|NAME|TOTAL|USED|UTIL|MIG
//	part RETURN|GPU|INDEX|UUID|SIZE|TOTAL|USED
//
// A part is of the GPU with that number, and its SIZE is the end of its name.
// RETURN of a gpu is what finding it answers, TOTAL and USED are MiB, UTIL below 0 and
// MIG below 0 are answered with "not supported". With -DOLD it lacks a function.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, MAX = 16, PARTS = 8 };

struct gpu {
	int ret, util, mig;
	long total, used;
	char uuid[96], name[200];
};

struct part {
	struct gpu as;
	int of, index;
};

struct memory { unsigned long long total, free, used; };
struct rates { unsigned gpu, memory; };

// Each call looks for itself, and threads call at once.
static __thread struct {
	int init, count, cuda, gpus;
	char driver[80];
	struct gpu gpu[MAX];
	int parts;
	struct part part[MAX];
} now;

// A handle is an address within slots: it has to be one of a kind, and nothing is there.
static char slots[2 * MAX];

static void look(void) {
	char line[512];
	const char *path = getenv("PODYARD_FAKE_NVML");
	FILE *f = path ? fopen(path, "r") : NULL;
	memset(&now, 0, sizeof now);
	strcpy(now.driver, "570.86.15");
	now.cuda = 12080;
	while (f && fgets(line, sizeof line, f)) {
		struct gpu *g = &now.gpu[now.gpus];
		sscanf(line, "init %d", &now.init);
		sscanf(line, "count %d", &now.count);
		sscanf(line, "cuda %d", &now.cuda);
		sscanf(line, "driver %79s", now.driver);
		if (now.gpus < MAX && sscanf(line, "gpu %d|%95[^|]|%95[^|]|%ld|%ld|%d|%d",
			&g->ret, g->uuid, g->name, &g->total, &g->used, &g->util, &g->mig) == 7)
			now.gpus++;
		struct part *p = &now.part[now.parts];
		char size[32];
		if (now.parts < MAX && sscanf(line, "part %d|%d|%d|%95[^|]|%31[^|]|%ld|%ld",
			&p->as.ret, &p->of, &p->index, p->as.uuid, size, &p->as.total, &p->as.used) == 7 && p->of < now.gpus) {
			snprintf(p->as.name, sizeof p->as.name, "%.95s %s", now.gpu[p->of].name, size);
			now.parts++;
		}
	}
	if (f) fclose(f);
}

static struct gpu *of(void *handle) {
	int i = (int)((char *)handle - slots);
	look();
	if (i >= MAX) return i - MAX < now.parts ? &now.part[i - MAX].as : NULL;
	return i >= 0 && i < now.gpus ? &now.gpu[i] : NULL;
}

static int is_part(void *handle) { return (char *)handle - slots >= MAX; }

static int copy(char *to, unsigned size, const char *from) {
	snprintf(to, size, "%s", from);
	return SUCCESS;
}

const char *nvmlErrorString(int r) {
	switch (r) {
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_FOUND: return "Not Found";
	case GPU_IS_LOST: return "GPU is lost";
	}
	return "Unknown Error";
}

int nvmlInit_v2(void) { look(); return now.init; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { look(); return copy(v, n, now.driver); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { look(); *v = now.cuda; return *v ? SUCCESS : NOT_SUPPORTED; }
int nvmlDeviceGetCount_v2(unsigned *n) { look(); *n = now.gpus; return now.count; }

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
	look();
	if (i >= (unsigned)now.gpus) return INVALID_ARGUMENT;
	*h = slots + i;
	return now.gpu[i].ret;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **h) {
	look();
	for (int i = 0; i < now.gpus; i++)
		if (!strcmp(now.gpu[i].uuid, uuid)) {
			*h = slots + i;
			return now.gpu[i].ret;
		}
	for (int i = 0; i < now.parts; i++)
		if (!strcmp(now.part[i].as.uuid, uuid)) {
			*h = slots + MAX + i;
			return now.part[i].as.ret;
		}
	return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *h, char *v, unsigned n) { struct gpu *g = of(h); return g ? copy(v, n, g->uuid) : GPU_IS_LOST; }
int nvmlDeviceGetName(void *h, char *v, unsigned n) { struct gpu *g = of(h); return g ? copy(v, n, g->name) : GPU_IS_LOST; }

int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) {
	struct gpu *g = of(h);
	if (!g) return GPU_IS_LOST;
	m->total = (unsigned long long)g->total << 20;
	m->used = (unsigned long long)g->used << 20;
	m->free = m->total - m->used;
	return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetUtilizationRates(void *h, struct rates *u) {
	struct gpu *g = of(h);
	if (!g) return GPU_IS_LOST;
	if (g->util < 0 || is_part(h)) return NOT_SUPPORTED;
	u->gpu = g->util;
	u->memory = 0;
	return SUCCESS;
}
#endif

int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
	struct gpu *g = of(h);
	if (!g) return GPU_IS_LOST;
	if (is_part(h)) return INVALID_ARGUMENT;
	if (g->mig < 0) return NOT_SUPPORTED;
	*current = *pending = g->mig;
	return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) {
	if (!of(h)) return GPU_IS_LOST;
	*n = PARTS;
	return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **part) {
	if (!of(h)) return GPU_IS_LOST;
	for (int i = 0; i < now.parts; i++)
		if (now.part[i].of == (char *)h - slots && now.part[i].index == (int)index) {
			*part = slots + MAX + i;
			return now.part[i].as.ret;
		}
	return NOT_FOUND;
}
