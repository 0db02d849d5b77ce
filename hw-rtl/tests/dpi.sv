// The modules through which a design meets its host and memory: their ports and functions are those of the
// original's, as Chisel's black boxes name them. Each calls its function in every clock, with what the design drives
// in it, and the design sees the answer in the next.

module VTASimDPI (
    input        clock,
    input        reset,
    output logic dpi_wait
);
  import "DPI-C" function void VTASimDPI(output byte unsigned sim_wait, output byte unsigned sim_exit);

  byte unsigned told_wait, told_exit;

  always_ff @(posedge clock) begin
    if (reset) begin
      told_wait = 0;
      told_exit = 0;
    end else VTASimDPI(told_wait, told_exit);
    dpi_wait <= told_wait[0];
    if (told_exit != 0) $finish;
  end
endmodule

module VTAHostDPI #(
    parameter ADDR_BITS = 8,
    parameter DATA_BITS = 32
) (
    input                        clock,
    input                        reset,
    output logic                 dpi_req_valid,
    output logic                 dpi_req_opcode,
    output logic [ADDR_BITS-1:0] dpi_req_addr,
    output logic [DATA_BITS-1:0] dpi_req_value,
    input                        dpi_req_deq,
    input                        dpi_resp_valid,
    input        [DATA_BITS-1:0] dpi_resp_bits
);
  import "DPI-C" function void VTAHostDPI(
    output byte unsigned req_valid,
    output byte unsigned req_opcode,
    output byte unsigned req_addr,
    output int unsigned  req_value,
    input  byte unsigned req_deq,
    input  byte unsigned resp_valid,
    input  int unsigned  resp_value
  );

  byte unsigned valid, opcode, addr;
  int unsigned value;

  always_ff @(posedge clock) begin
    if (reset) valid = 0;
    else VTAHostDPI(valid, opcode, addr, value, {7'd0, dpi_req_deq}, {7'd0, dpi_resp_valid}, dpi_resp_bits);
    dpi_req_valid  <= valid[0];
    dpi_req_opcode <= opcode[0];
    dpi_req_addr   <= addr;
    dpi_req_value  <= value;
  end
endmodule

module VTAMemDPI #(
    parameter LEN_BITS  = 8,
    parameter ADDR_BITS = 64,
    parameter DATA_BITS = 64,
    parameter STRB_BITS = DATA_BITS / 8
) (
    input                        clock,
    input                        reset,
    input                        dpi_req_ar_valid,
    input        [ LEN_BITS-1:0] dpi_req_ar_len,
    input        [          7:0] dpi_req_ar_id,
    input        [ADDR_BITS-1:0] dpi_req_ar_addr,
    input                        dpi_req_aw_valid,
    input        [ LEN_BITS-1:0] dpi_req_aw_len,
    input        [ADDR_BITS-1:0] dpi_req_aw_addr,
    input                        dpi_wr_valid,
    input        [DATA_BITS-1:0] dpi_wr_bits_data,
    input        [STRB_BITS-1:0] dpi_wr_bits_strb,
    output logic                 dpi_rd_valid,
    output logic [          7:0] dpi_rd_bits_id,
    output logic [DATA_BITS-1:0] dpi_rd_bits_data,
    input                        dpi_rd_ready
);
  import "DPI-C" function void VTAMemDPI(
    input  byte unsigned    rd_req_valid,
    input  byte unsigned    rd_req_len,
    input  byte unsigned    rd_req_id,
    input  longint unsigned rd_req_addr,
    input  byte unsigned    wr_req_valid,
    input  byte unsigned    wr_req_len,
    input  longint unsigned wr_req_addr,
    input  byte unsigned    wr_valid,
    input  longint unsigned wr_value[],
    input  longint unsigned wr_strb,
    output byte unsigned    rd_valid,
    output byte unsigned    rd_id,
    output longint unsigned rd_value[],
    input  byte unsigned    rd_ready
  );

  localparam WORDS = DATA_BITS / 64;

  byte unsigned valid, id;
  longint unsigned written[WORDS-1:0];
  longint unsigned read[WORDS-1:0];

  always_comb begin
    for (int i = 0; i < WORDS; i++) written[i] = dpi_wr_bits_data[64*i+:64];
  end

  always_ff @(posedge clock) begin
    if (reset) valid = 0;
    else
      VTAMemDPI({7'd0, dpi_req_ar_valid}, dpi_req_ar_len, dpi_req_ar_id, dpi_req_ar_addr, {7'd0, dpi_req_aw_valid},
                dpi_req_aw_len, dpi_req_aw_addr, {7'd0, dpi_wr_valid}, written, 64'(dpi_wr_bits_strb), valid, id,
                read, {7'd0, dpi_rd_ready});
    dpi_rd_valid   <= valid[0];
    dpi_rd_bits_id <= id;
    for (int i = 0; i < WORDS; i++) dpi_rd_bits_data[64*i+:64] <= read[i];
  end
endmodule
