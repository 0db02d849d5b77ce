//! Listings of compiled networks, and what they prove.

use std::path::Path;

use vta_compiler::lower::{self, LowerOptions};
use vta_files::output;
use vta_program::coverage::{self, Coverage};
use vta_program::listing::{Listing, ListingError};

use crate::compile::tiles::Measured;
use crate::compile::{Compiled, bundle};
use crate::error::{Context, Error, Result, ensure};
use crate::files;
use crate::options::Target;
use crate::options::names::LISTING;
use crate::watch::Watch;

pub use crate::compile::listing_html::LEGEND;

/// As [`bundle::bundle()`], with the listing of what the device runs.
///
/// # Errors
/// As for [`bundle::bundle()`]; [`Error::Usage`] for a network between whose layers the host computes.
pub fn compile(name: &str, target: &Target, watch: &dyn Watch) -> Result<(Compiled, Listing)> {
    let mut compiled = bundle::compiled(target.open(name, None)?, target, watch)?;
    let listing = of(&compiled, name, target)?;
    compiled.graph = None;
    Ok((compiled, listing))
}

/// The listing of a network that was compiled for this target, and still knows its graph.
///
/// # Errors
/// [`Error::Usage`] for a network between whose layers the host computes, or over several devices.
fn of(compiled: &Compiled, name: &str, target: &Target) -> Result<Listing> {
    ensure!(
        compiled.split.is_none(),
        "{}: the host computes between layers of {}; a listing is of a network that one \
         device runs";
        LISTING, name
    );
    let graph = compiled.graph.as_ref();
    let graph = graph.context("the network isn't known any more")?;
    let config = &compiled.program.config;
    let tiles = Measured::read(target, config)?.tiles(graph, config)?;
    let (program, geometries) =
        lower::compile_traced(graph, config, &LowerOptions::default(), &tiles)?;
    // The same network with the same tiles is the same program.
    ensure!(
        program == *compiled.program,
        "{name}: the listing is of another program than the bundle"
    );
    let listing = Listing::of(&program, &geometries);
    listing.map_err(refused).context(name)
}

fn refused(error: ListingError) -> Error {
    Error::input(error.to_string())
}

/// Whether a file is a listing, by its name's end.
pub(crate) fn is_listing(file: &Path) -> bool {
    files::is(file, &["csv"])
}

/// Writes a listing, as comma-separated values or as a page, by the file's end.
///
/// # Errors
/// [`Error::Usage`] for another end, what can't be written.
pub fn write(file: &Path, title: &str, listing: &Listing) -> Result<()> {
    check_name(file)?;
    if files::is(file, &["html"]) {
        output::write(file, crate::compile::listing_html::page(title, listing))?;
    } else {
        output::write_with(file, |out| listing.write(out))?;
    }
    Ok(())
}

/// Whether a listing can have this name.
///
/// # Errors
/// [`Error::Usage`] for an end that means no form.
pub fn check_name(file: &Path) -> Result<()> {
    ensure!(
        is_listing(file) || files::is(file, &["html"]),
        "{} {}: its name ends neither in .csv nor in .html";
        LISTING, file.display()
    );
    Ok(())
}

/// Reads a listing.
///
/// # Errors
/// A file that can't be read, or isn't one, with its line.
pub fn read(file: &Path) -> Result<Listing> {
    let name = || file.display().to_string();
    let bytes = files::read_file(file)?;
    let text = String::from_utf8(bytes).with_context(|| format!("{}: not a text file", name()))?;
    Listing::read(&text).map_err(refused).with_context(name)
}

/// What a listing proves: of a file in the form of [`Listing::write`], or of a network, whose listing is written
/// and read again first.
///
/// # Errors
/// What can't be read or compiled, or not be followed to its end. Faults are none.
pub fn prove(name: &str, target: &Target, watch: &dyn Watch) -> Result<Coverage> {
    let file = Path::new(name);
    let listing = if is_listing(file) {
        read(file)?
    } else {
        let (_, listing) = compile(name, target, watch)?;
        let mut text = Vec::new();
        listing.write(&mut text)?;
        drop(listing);
        let text = String::from_utf8(text).context(name)?;
        Listing::read(&text).map_err(refused)?
    };
    let proven = coverage::coverage(&listing);
    proven.map_err(|error| Error::input(error.to_string()).at(name))
}
