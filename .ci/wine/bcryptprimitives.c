/*
 * bcryptprimitives.dll for Wine releases that lack it (before 9).
 *
 * Rust's standard library imports ProcessPrng from this DLL, so without it no Rust
 * program starts. Windows documents it as: fill the buffer with random bytes, never
 * fail, return TRUE. RtlGenRandom, which every Wine has, gives the bytes.
 */
#include <stdlib.h>
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *buffer, SIZE_T length)
{
    while (length > 0) {
        ULONG part = length > 0x10000000 ? 0x10000000 : (ULONG)length;
        if (!RtlGenRandom(buffer, part))
            abort(); /* the caller trusts the bytes, and there is no way to report */
        buffer += part;
        length -= part;
    }
    return TRUE;
}
