//! Listings of compiled networks, and what they prove.

use std::path::Path;

use vta_files::output;
use vta_program::coverage::{self, Coverage};
use vta_program::listing::{Listing, ListingError};

use crate::compile::{Bundle, Compiled, bundle, tiles};
use crate::error::{Context, Error, Result, ensure};
use crate::files;
use crate::options::BundleOptions;
use crate::options::names::LISTING;
use crate::watch::Watch;

/// As [`bundle::bundle()`], with the listing of what the device runs.
///
/// # Errors
/// As for [`bundle::bundle()`]; [`Error::Usage`] for a network between whose layers the host computes.
pub fn compile(args: &BundleOptions, watch: &dyn Watch) -> Result<(Bundle, Listing)> {
    let model = args.network().open(&args.model, None)?;
    let mut bundle = bundle::compiled(model, args, watch)?;
    let listing = of(&bundle.compiled, args)?;
    bundle.compiled.graph = None;
    Ok((bundle, listing))
}

/// The listing of a network that was compiled with these options, and still knows its graph.
///
/// # Errors
/// [`Error::Usage`] for a network between whose layers the host computes, or over several devices.
fn of(compiled: &Compiled, args: &BundleOptions) -> Result<Listing> {
    ensure!(
        compiled.split.is_none(),
        "{}: the host computes between layers of {}; a listing is of a network that one \
         device runs";
        LISTING, args.model
    );
    let graph = compiled.graph.as_ref();
    let graph = graph.context("the network isn't known any more")?;
    let config = &compiled.program.config;
    let (program, geometries) = tiles::traced(graph, config, &args.tiles, args.board.as_deref())?;
    // The same network with the same tiles is the same program.
    ensure!(
        program == *compiled.program,
        "{}: the listing is of another program than the bundle",
        args.model
    );
    let name = || args.model.clone();
    Listing::of(&program, &geometries)
        .map_err(refused)
        .with_context(name)
}

fn refused(error: ListingError) -> Error {
    Error::input(error.to_string())
}

/// Whether a file is a listing, by its name's end.
pub fn is_listing(file: &Path) -> bool {
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
pub fn prove(args: &BundleOptions, watch: &dyn Watch) -> Result<Coverage> {
    let file = Path::new(&args.model);
    let listing = if is_listing(file) {
        read(file)?
    } else {
        let (_, listing) = compile(args, watch)?;
        let mut text = Vec::new();
        listing.write(&mut text)?;
        drop(listing);
        let text = String::from_utf8(text).with_context(|| args.model.clone())?;
        Listing::read(&text).map_err(refused)?
    };
    let proven = coverage::coverage(&listing);
    proven.map_err(|error| Error::input(error.to_string()).at(&args.model))
}
