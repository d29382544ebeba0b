// A program for tests with a real GPU: it prints a line with the number and the UUIDs of the
// GPUs that CUDA gives it, works on the first one for as many seconds as its argument says,
// and prints "worked". It needs the driver and no toolkit.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct { unsigned char bytes[16]; } uuid;

// spin adds up until it is done, which takes some milliseconds.
static const char spin[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u64 out) {\n"
	"  .reg .pred %p; .reg .u32 %i, %x; .reg .u64 %a;\n"
	"  ld.param.u64 %a, [out]; cvta.to.global.u64 %a, %a;\n"
	"  mov.u32 %i, 0; mov.u32 %x, %tid.x;\n"
	"again:\n"
	"  mad.lo.u32 %x, %x, 1664525, 1013904223; add.u32 %i, %i, 1;\n"
	"  setp.lt.u32 %p, %i, 1000000; @%p bra again;\n"
	"  st.global.u32 [%a], %x; ret;\n}\n";

static void *cuda;

// call looks a function up and calls it with up to eleven arguments; CUDA's results are ints.
#define call(name, ...) do { \
	int (*f)() = (int (*)())dlsym(cuda, name); \
	int r = f ? f(__VA_ARGS__) : -1; \
	if (r) { printf("%s: %d\n", name, r); return 1; } \
} while (0)

int main(int argc, char **argv) {
	int seconds = argc > 1 ? atoi(argv[1]) : 0, n = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!(cuda = dlopen("libcuda.so.1", RTLD_NOW))) {
		printf("%s\n", dlerror());
		return 1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	int r = init ? init(0) : -1;
	if (r == 100) { // no device
		printf("sees 0\n");
		return 0;
	}
	if (r) {
		printf("cuInit: %d\n", r);
		return 1;
	}
	call("cuDeviceGetCount", &n);
	printf("sees %d", n);
	for (int i = 0; i < n; i++) {
		int dev;
		uuid u;
		call("cuDeviceGet", &dev, i);
		call("cuDeviceGetUuid_v2", &u, dev);
		printf(" ");
		for (int b = 0; b < 16; b++) printf("%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", u.bytes[b]);
	}
	printf("\n");
	if (!n || !seconds) return 0;

	void *ctx, *module, *kernel;
	unsigned long long out;
	int dev;
	call("cuDeviceGet", &dev, 0);
	call("cuDevicePrimaryCtxRetain", &ctx, dev);
	call("cuCtxSetCurrent", ctx);
	call("cuModuleLoadData", &module, spin);
	call("cuModuleGetFunction", &kernel, module, "spin");
	call("cuMemAlloc_v2", &out, (size_t)256 << 20);
	void *args[] = {&out};
	for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
		call("cuLaunchKernel", kernel, 512, 1, 1, 256, 1, 1, 0, NULL, args, NULL);
		call("cuCtxSynchronize", 0);
	}
	printf("worked\n");
	return 0;
}
