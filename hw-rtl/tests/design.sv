// A design for the tests of `rtl:` with a stock Verilator: it has the ports of the original's test bench, fetches
// instruction words from memory and runs, one after the other, LOADs of accumulators, ALU operations with an
// immediate and STOREs of up to 16 tiles. Some immediates make it fail in one way or another.

module Test (
    input        clock,
    input        reset,
    input        sim_clock,
    output logic sim_wait
);
  import "DPI-C" function int raise(input int signal);

  localparam TILES = 16, LANES = 16;
  localparam [3:0] IDLE = 0, FETCH = 1, WORD = 2, DECODE = 3, READ = 4, WRITE = 5, BEAT = 6, HUNG = 7;

  VTASimDPI sim (
      .clock(sim_clock),
      .reset,
      .dpi_wait(sim_wait)
  );

  // Registers: an access is taken in the clock in which it is seen, and seen once more in the next.
  logic req_valid, req_opcode, taken, resp_valid;
  logic [7:0] req_addr;
  logic [31:0] req_value, resp_bits;
  logic [31:0] registers[16];
  logic launched;
  wire take = req_valid && !taken;

  VTAHostDPI host (
      .clock,
      .reset,
      .dpi_req_valid(req_valid),
      .dpi_req_opcode(req_opcode),
      .dpi_req_addr(req_addr),
      .dpi_req_value(req_value),
      .dpi_req_deq(take),
      .dpi_resp_valid(resp_valid),
      .dpi_resp_bits(resp_bits)
  );

  logic ar_valid, aw_valid, wr_valid, rd_valid;
  logic [7:0] ar_len, aw_len, rd_id;
  logic [63:0] ar_addr, aw_addr, wr_data, rd_data;

  VTAMemDPI mem (
      .clock,
      .reset,
      .dpi_req_ar_valid(ar_valid),
      .dpi_req_ar_len(ar_len),
      .dpi_req_ar_id(8'd0),
      .dpi_req_ar_addr(ar_addr),
      .dpi_req_aw_valid(aw_valid),
      .dpi_req_aw_len(aw_len),
      .dpi_req_aw_addr(aw_addr),
      .dpi_wr_valid(wr_valid),
      .dpi_wr_bits_data(wr_data),
      .dpi_wr_bits_strb(8'hff),
      .dpi_rd_valid(rd_valid),
      .dpi_rd_bits_id(rd_id),
      .dpi_rd_bits_data(rd_data),
      .dpi_rd_ready(1'b1)
  );

  logic [3:0] state;
  logic [31:0] at, left, cycles;
  logic [127:0] insn;
  logic half;
  logic [31:0] acc[TILES*LANES];
  logic [7:0] index, last;

  // Fields, as docs/isa.md has them.
  wire [2:0] opcode = insn[2:0];
  wire [2:0] memory = insn[9:7];
  wire [15:0] sram = insn[25:10];
  wire [31:0] dram = insn[57:26];
  wire [7:0] first = 8'(sram * 16);
  wire [15:0] x_size = insn[64+16+:16];
  wire [13:0] iter_in = insn[62:49];
  wire [2:0] alu_op = insn[64+44+:3];
  wire signed [15:0] imm = insn[64+48+:16];
  wire signed [31:0] wide = 32'(imm);

  function automatic [31:0] alu(input signed [31:0] x);
    case (alu_op)
      0: return x < wide ? x : wide;
      1: return x > wide ? x : wide;
      2: return x + wide;
      default: return x >>> wide[4:0];
    endcase
  endfunction

  task automatic misbehave();
    case (imm)
      -32001: assert (index == 8'hff) else $fatal(1, "the tiles of %0d are taken", index);
      -32002: $fatal(1, "out of order");
      -32003: $stop;
      -32004: $finish;
      -32005: state <= HUNG;
      -32006: begin
        $fwrite(32'h80000002, "Assertion failed: as Chisel prints it\n");
        $fatal;
      end
      -32007: void'(raise(6));
      default: ;
    endcase
  endtask

  always_ff @(posedge clock) begin
    ar_valid   <= 0;
    aw_valid   <= 0;
    wr_valid   <= 0;
    resp_valid <= 0;
    taken      <= take;
    launched   <= 0;
    if (state != IDLE) cycles <= cycles + 1;
    if (take) begin
      if (req_opcode) registers[req_addr[5:2]] <= req_value;
      else begin
        resp_valid <= 1;
        resp_bits  <= req_addr == 4 ? cycles : registers[req_addr[5:2]];
      end
      launched <= req_opcode && req_addr == 0 && req_value == 1;
    end
    case (state)
      IDLE:
      if (launched) begin
        at     <= registers[3];
        left   <= registers[2];
        cycles <= 0;
        state  <= FETCH;
      end
      FETCH: begin
        ar_valid <= 1;
        ar_addr  <= 64'(at);
        ar_len   <= 1;
        half     <= 0;
        state    <= WORD;
      end
      WORD:
      if (rd_valid) begin
        if (half) insn[127:64] <= rd_data;
        else insn[63:0] <= rd_data;
        half <= 1;
        if (half) state <= DECODE;
      end
      DECODE: begin
        at    <= at + 16;
        left  <= left - 1;
        index <= 0;
        state <= FETCH;
        case (opcode)
          0:
          if (memory == 3 && x_size != 0) begin
            ar_valid <= 1;
            ar_addr  <= 64'(dram) * 64;
            ar_len   <= 8'(x_size * 8 - 1);
            last     <= 8'(x_size * 8 - 1);
            state    <= READ;
          end
          1: state <= x_size == 0 ? FETCH : WRITE;
          3: begin
            registers[0] <= 2;
            state        <= IDLE;
          end
          4: begin
            for (int i = 0; i < TILES * LANES; i++) if (i < 32'(iter_in) * LANES) acc[i] = alu(acc[i]);
            misbehave();
          end
          default: ;
        endcase
      end
      READ:
      if (rd_valid) begin
        acc[first+index*2]   = rd_data[31:0];
        acc[first+index*2+1] = rd_data[63:32];
        index <= index + 1;
        if (index == last) state <= FETCH;
      end
      WRITE: begin
        aw_valid <= 1;
        aw_addr  <= 64'(dram) * 16;
        aw_len   <= 8'(x_size * 2 - 1);
        last     <= 8'(x_size * 2 - 1);
        state    <= BEAT;
      end
      BEAT: begin
        wr_valid <= 1;
        for (int i = 0; i < 8; i++) wr_data[8*i+:8] <= acc[first+index*8+8'(i)][7:0];
        index <= index + 1;
        if (index == last) state <= FETCH;
      end
      default: ;
    endcase
    if (reset) begin
      state        <= IDLE;
      registers[0] <= 0;
      taken        <= 0;
    end
  end
endmodule
