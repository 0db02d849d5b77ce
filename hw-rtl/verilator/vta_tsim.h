// Included before every file of the library (-include): Verilator's own handlers of $finish, $stop and $fatal end
// the process, so that vta_tsim.cpp replaces them, and what the design prints goes through it.
#ifndef VTA_TSIM_H
#define VTA_TSIM_H

#include <cstdio>

#define VL_USER_FINISH
#define VL_USER_STOP
#define VL_USER_FATAL

int vta_printf(const char* format, ...);
size_t vta_fwrite(const void* bytes, size_t size, size_t count, FILE* file);

#define VL_PRINTF vta_printf
// Chisel's assertions print with $fwrite, for which Verilator's runtime has no macro.
#define fwrite vta_fwrite

#endif
