// The host's side of a Verilated design, for `vta .. --device rtl:LIB.so`: docs/rtl.md has the interface and the
// command that builds a library with it. The top module is `Vvta` (verilator --prefix Vvta), with the inputs
// `clock`, `reset` and `sim_clock` and the output `sim_wait`; the modules VTAHostDPI, VTAMemDPI and VTASimDPI call
// the functions of their names.
#include <cstdarg>
#include <cstdint>
#include <memory>
#include <string>

#include "Vvta.h"
#include "svdpi.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#undef fwrite

namespace {

using SimCall = void (*)(void*, unsigned char*, unsigned char*);
using HostCall = void (*)(void*, unsigned char*, unsigned char*, unsigned char*, unsigned int*, unsigned char,
                          unsigned char, unsigned int);
using MemCall = void (*)(void*, unsigned char, unsigned char, unsigned char, unsigned long long, unsigned char,
                         unsigned char, unsigned long long, unsigned char, svOpenArrayHandle, unsigned long long,
                         unsigned char*, unsigned char*, svOpenArrayHandle, unsigned char);

void* context = nullptr;
SimCall sim_call = nullptr;
HostCall host_call = nullptr;
MemCall mem_call = nullptr;
std::string wave_file;
// What the design printed last, and why it ended; read by the host after VTADPISim has returned.
std::string printed;
std::string ended;
bool failed = false;

// Keeps the end of what is printed: an assertion's text is the last.
void note(const char* text, size_t size) {
  const size_t kept = 2000;
  printed.append(text, size);
  if (printed.size() > 2 * kept) printed.erase(0, printed.size() - kept);
}

// The first cause counts: a design may go on to the end of a clock.
void end(const char* what, const char* file, int line, const char* hier, const char* text, bool wrong) {
  if (ended.empty()) {
    ended = what;
    if (file && file[0]) ended += std::string(" at ") + file + ":" + std::to_string(line);
    if (hier && hier[0]) ended += std::string(" in ") + hier;
    if (text && text[0]) ended += std::string(": ") + text;
    if (wrong && !printed.empty()) ended += "\n" + printed;
  }
  failed = failed || wrong;
  Verilated::threadContextp()->gotFinish(true);
}

}  // namespace

int vta_printf(const char* format, ...) {
  char text[4096];
  va_list args;
  va_start(args, format);
  const int size = std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (size > 0) {
    const size_t there = size < static_cast<int>(sizeof text) ? size : sizeof text - 1;
    note(text, there);
    // Standard output is the host's, which may print JSON there.
    std::fwrite(text, 1, there, stderr);
  }
  return size;
}

size_t vta_fwrite(const void* bytes, size_t size, size_t count, FILE* file) {
  if (file == stderr || file == stdout) {
    note(static_cast<const char*>(bytes), size * count);
    file = stderr;
  }
  return std::fwrite(bytes, size, count, file);
}

void vl_finish(const char* file, int line, const char* hier) { end("$finish", file, line, hier, "", false); }

void vl_stop(const char* file, int line, const char* hier) { end("$stop", file, line, hier, "", true); }

void vl_fatal(const char* file, int line, const char* hier, const char* text) {
  end("a fatal error", file, line, hier, text, true);
}

// What the design's DPI modules import.
extern "C" {

void VTASimDPI(unsigned char* wait, unsigned char* exit) { sim_call(context, wait, exit); }

void VTAHostDPI(unsigned char* req_valid, unsigned char* req_opcode, unsigned char* req_addr,
                unsigned int* req_value, unsigned char req_deq, unsigned char resp_valid, unsigned int resp_value) {
  host_call(context, req_valid, req_opcode, req_addr, req_value, req_deq, resp_valid, resp_value);
}

void VTAMemDPI(unsigned char rd_req_valid, unsigned char rd_req_len, unsigned char rd_req_id,
               unsigned long long rd_req_addr, unsigned char wr_req_valid, unsigned char wr_req_len,
               unsigned long long wr_req_addr, unsigned char wr_valid, const svOpenArrayHandle wr_value,
               unsigned long long wr_strb, unsigned char* rd_valid, unsigned char* rd_id,
               const svOpenArrayHandle rd_value, unsigned char rd_ready) {
  mem_call(context, rd_req_valid, rd_req_len, rd_req_id, rd_req_addr, wr_req_valid, wr_req_len, wr_req_addr,
           wr_valid, wr_value, wr_strb, rd_valid, rd_id, rd_value, rd_ready);
}

// What the host calls.
void VTADPIInit(void* handle, SimCall sim, HostCall host, MemCall mem) {
  context = handle;
  sim_call = sim;
  host_call = host;
  mem_call = mem;
}

// Why VTADPISim returned, if the design ended itself: empty else.
const char* VTADPIEnded() { return ended.c_str(); }

int VTADPITrace(const char* file) {
#if VM_TRACE
  wave_file = file;
  std::FILE* made = std::fopen(file, "w");
  if (!made) return 1;
  return std::fclose(made) ? 1 : 0;
#else
  (void)file;
  return 2;  // Built without --trace.
#endif
}

int VTADPISim() {
  std::unique_ptr<VerilatedContext> sim(new VerilatedContext);
  Verilated::threadContextp(sim.get());
  std::unique_ptr<Vvta> top(new Vvta(sim.get()));
#if VM_TRACE
  std::unique_ptr<VerilatedVcdC> vcd;
  if (!wave_file.empty()) {
    sim->traceEverOn(true);
    vcd.reset(new VerilatedVcdC);
    top->trace(vcd.get(), 99);
    vcd->open(wave_file.c_str());
  }
#endif
  top->reset = 1;
  for (uint64_t clock = 0; !sim->gotFinish(); clock++) {
    if (clock == 10) top->reset = 0;
    for (int level = 0; level < 2; level++) {
      top->clock = level;
      top->sim_clock = level;
      top->eval();
      sim->timeInc(1);
#if VM_TRACE
      if (vcd) vcd->dump(sim->time());
#endif
    }
  }
  top->final();
#if VM_TRACE
  if (vcd) vcd->close();
#endif
  return failed ? 1 : 0;
}

}  // extern "C"
