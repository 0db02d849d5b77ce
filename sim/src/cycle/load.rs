//! LOAD: which bytes it requests and when its last tile is written.

use vta_isa::{Config, Load, MemType};

use super::TimingConfig;
use super::arrival::{Arrival, Padding};
use super::bursts::{Bursts, Cuts};
use super::events::Client;
use super::memory::Transfer;
use super::module::Start;

/// Cycles from a beat on the bus to its write by a loader that assembles tiles of several beats.
const NARROW_WRITE_DELAY: u64 = 2;
/// The same for a loader that takes a beat as it comes: micro-ops, and tiles no wider than the bus.
const DIRECT_WRITE_DELAY: u64 = 1;

/// The transfer of a LOAD; `None` for a synchronisation.
pub(super) fn transfer(
    timing: &TimingConfig,
    config: &Config,
    load: &Load,
    start: Start,
    alone: u64,
) -> Option<Transfer> {
    let rows = load.dram_rows(config)?;
    let elem = config.elem_bytes(load.mem) as u64;
    // ACC8 is written by a loader of ACC, whose kind follows from the tiles of the scratchpad.
    let client = client(load);
    let tile_bytes = match client {
        Client::Acc | Client::Preload => config.elem_bytes(MemType::Acc) as u64,
        _ => elem,
    };
    let bus_bytes = u64::from(timing.bus_bytes);
    let direct = client == Client::Uop || bus_bytes >= tile_bytes;
    let single = load.mem == MemType::Acc8 && bus_bytes > elem;
    let pad_delay = if client == Client::Uop { 1 } else { 2 };
    let arrival = Arrival {
        write_delay: if direct {
            DIRECT_WRITE_DELAY
        } else {
            NARROW_WRITE_DELAY
        },
        single_tile_bytes: if single { elem } else { 0 },
        padding: Padding::of(load),
        pad_next: alone + pad_delay,
        ..Arrival::default()
    };
    Some(Transfer {
        client,
        insn: start.insn,
        bursts: Bursts::new(Cuts::new(timing), rows),
        opened_at: alone + 1,
        offer_at: start.cycle + 1 + u64::from(load.y_pad_0),
        arrival,
    })
}

/// Who reads what a LOAD loads.
pub(super) const fn client(load: &Load) -> Client {
    match load.mem {
        MemType::Uop => Client::Uop,
        MemType::Inp => Client::Inp,
        MemType::Wgt | MemType::Wgt4 => Client::Wgt,
        MemType::Acc | MemType::Acc8 | MemType::Out => match load.preload {
            true => Client::Preload,
            false => Client::Acc,
        },
    }
}
