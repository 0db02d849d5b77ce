//! The memory scopes that were measured to be the fastest, by device, driver and instance.

use vta_isa::Config;

use crate::build::cache::BinaryCache;
use crate::build::program::config_macros;
use crate::options::Options;
use crate::scopes::Scopes;
use crate::select::DeviceEntry;

/// What a choice holds for: another device, driver, instance or way of forming products asks for
/// another file.
fn key(entry: &DeviceEntry, config: &Config, options: &Options) -> String {
    let (device, macros) = (entry.facts.identity(), config_macros(config));
    format!("memory scopes\n{device}\n{macros}\nmath {:?}", options.math)
}

/// Remembers what is the fastest on a device: it is opened so from now on, unless
/// [`Options::scopes`] says otherwise. The cache is that of the options; one that can't be written
/// is a warning.
pub fn remember_scopes(entry: &DeviceEntry, config: &Config, options: &Options, scopes: Scopes) {
    if let Some(folder) = options.cache_folder() {
        let text = scopes.to_string();
        BinaryCache::new(folder).put(&key(entry, config, options), text.as_bytes());
    }
}

/// What was remembered for a device. A file that is damaged, or says what is no scope, is
/// ignored with a warning.
pub fn remembered_scopes(
    entry: &DeviceEntry,
    config: &Config,
    options: &Options,
) -> Option<Scopes> {
    let cache = BinaryCache::new(options.cache_folder()?);
    let text = cache.get(&key(entry, config, options))?;
    let scopes = String::from_utf8_lossy(&text).parse();
    if let Err(error) = &scopes {
        tracing::warn!(%error, "ignoring the memory scopes of the cache");
    }
    scopes.ok()
}

#[cfg(test)]
mod tests;
