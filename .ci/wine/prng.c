// bcryptprimitives.dll as Go needs it: wine 8 has none.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n) {
	while (n) {
		ULONG some = n > 65536 ? 65536 : (ULONG)n;
		if (!SystemFunction036(p, some)) return FALSE;
		p += some;
		n -= some;
	}
	return TRUE;
}
