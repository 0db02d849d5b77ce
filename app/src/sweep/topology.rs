//! Tables of layers as SCALE-Sim has them.
//!
//! A line of headings, then a layer a line, each cell and the line itself ended by a comma:
//!
//! ```text
//! Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
//! Conv1, 224, 224, 7, 7, 3, 64, 2,
//! ```
//!
//! or `Layer, M, N, K,` for products of an MxK and a KxN matrix.

use std::collections::HashMap;
use std::path::Path;

use vta_compiler::layer::{LayerSpec, MAX_ELEMENTS};
use vta_compiler::qgraph::{Pads, Window};

use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// The most layers of a table.
const MAX_LAYERS: usize = 10_000;
/// The most characters of a layer's name.
const MAX_NAME: usize = 200;

/// What is measured at each point: a network, or layers, each by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// A network (a file, `demo`, `zoo:NAME`) or a layer as `vta layer` names it; of layers what their table is
    /// called.
    pub name: String,
    /// The first axis of the grid, where it is of layers: at least one, no two of one name, each with its shape.
    pub layers: Option<Vec<(String, Shape)>>,
    /// The first axis of the grid, where it is of several networks.
    pub models: Vec<String>,
}

impl From<Vec<String>> for Workload {
    /// One network or layer, or several.
    fn from(models: Vec<String>) -> Self {
        Self {
            name: models.join(" "),
            layers: None,
            models,
        }
    }
}

/// A layer as the columns have it; its input has its padding already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows and columns.
    pub input: [usize; 2],
    /// Rows and columns.
    pub filter: [usize; 2],
    /// Of the input.
    pub channels: usize,
    /// Channels of the output; of a depthwise convolution, for each channel of the input.
    pub filters: usize,
    /// From output to output, in both directions.
    pub stride: usize,
    /// Whether each channel has filters of its own.
    pub depthwise: bool,
    /// Whether it is a product of two matrices, of which the first has a row for each position and a column for
    /// each channel, the second a column for each filter.
    pub dense: bool,
}

impl Workload {
    /// Layers in their order. One of a name that was there before has its number behind it: `Conv`, `Conv#2`.
    ///
    /// # Errors
    /// No layer, or too many; a name that is empty, too long, or has commas, quotes or control
    /// characters.
    pub fn of_layers(name: &str, mut layers: Vec<(String, Shape)>) -> Result<Self> {
        ensure!(!layers.is_empty(), "{name}: there are no layers");
        ensure!(
            layers.len() <= MAX_LAYERS,
            "{name}: {} layers: at most {MAX_LAYERS}",
            layers.len()
        );
        let mut names: HashMap<String, usize> = HashMap::new();
        for (layer, shape) in &mut layers {
            let place = || format!("{name}: layer '{}'", layer.escape_debug());
            let bad = |c: char| c.is_control() || c == ',' || c == '"';
            let legal = (1..=MAX_NAME).contains(&layer.chars().count()) && !layer.contains(bad);
            ensure!(
                legal,
                "{}: a name has 1 to {MAX_NAME} characters, no commas, quotes or control characters",
                place()
            );
            shape.check().with_context(place)?;
            let base = layer.clone();
            while names.contains_key(layer.as_str()) {
                let seen = names.entry(base.clone()).or_default();
                *seen += 1;
                *layer = format!("{base}#{seen}");
            }
            names.insert(layer.clone(), 1);
        }
        Ok(Self {
            name: name.to_owned(),
            layers: Some(layers),
            models: Vec::new(),
        })
    }

    /// Reads a table. Lines of a name with `DP` are depthwise convolutions, as SCALE-Sim takes them. Its
    /// `Sparsity` must be `1:1` and its `Batch Size` 1.
    ///
    /// # Errors
    /// A file that can't be read or isn't such a table: the file, the line and what is expected there; and as
    /// for [`of_layers`](Self::of_layers).
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path)?;
        let layers = parse(&text, &path.display().to_string())?;
        Self::of_layers(&files::name(&path.display().to_string()), layers)
    }
}

impl Shape {
    /// The product of an MxK and a KxN matrix.
    fn gemm([m, n, k]: [usize; 3]) -> Self {
        Self {
            input: [1, m],
            filter: [1, 1],
            channels: k,
            filters: n,
            stride: 1,
            depthwise: false,
            dense: true,
        }
    }

    /// Whether there can be such a layer, however large.
    ///
    /// # Errors
    /// A size of 0 or above the most, a filter larger than the input.
    fn check(&self) -> Result<()> {
        let [[h, w], [k, l]] = [self.input, self.filter];
        let [rows, columns, channels, filters] = if self.dense {
            ["rows", "M", "K", "N"]
        } else {
            ["input rows", "input columns", "channels", "filters"]
        };
        let sizes = [
            (rows, h),
            (columns, w),
            ("filter rows", k),
            ("filter columns", l),
            (channels, self.channels),
            (filters, self.filters),
            ("stride", self.stride),
        ];
        for (what, size) in sizes {
            let legal = (1..=MAX_ELEMENTS).contains(&size);
            ensure!(legal, "{what}: {size}, not from 1 to {MAX_ELEMENTS}");
        }
        ensure!(
            k <= h && l <= w,
            "a filter of {k}x{l} on an input of {h}x{w}"
        );
        Ok(())
    }

    /// The layer. Outputs are as many as SCALE-Sim counts, `ceil((input - filter + stride) / stride)`: where
    /// the last ones reach beyond the input, there is padding.
    ///
    /// # Errors
    /// A shape that no layer has, and tensors that can't be held.
    pub(super) fn layer(&self, name: &str) -> Result<LayerSpec> {
        self.check()?;
        let [[h, w], [k, l]] = [self.input, self.filter];
        let beyond = |input: usize, filter: usize| {
            ((input - filter).div_ceil(self.stride) * self.stride + filter) - input
        };
        let group = if self.depthwise { self.channels } else { 1 };
        let layer = LayerSpec {
            name: name.to_owned(),
            images: 1,
            chw: [self.channels, h, w],
            co: self.filters * group,
            window: Window {
                kernel: self.filter,
                stride: [self.stride; 2],
                dilation: [1, 1],
                pads: Pads {
                    bottom: beyond(h, k),
                    right: beyond(w, l),
                    ..Pads::NONE
                },
            },
            group,
            dense: self.dense,
        };
        Ok(layer.checked()?)
    }
}

/// What the columns' headings say. SCALE-Sim reads columns by their places.
struct Head {
    separator: char,
    /// Sizes that a layer has: 7 of a convolution, 3 of a product.
    sizes: usize,
    /// The column of batch sizes.
    batch: Option<usize>,
}

/// The headings of sizes, in lower case and without spaces.
const CONV: [&[&str]; 7] = [
    &["ifmapheight", "ifmapwidth"],
    &["ifmapwidth", "ifmapheight"],
    &["filterheight"],
    &["filterwidth"],
    &["channels", "channel"],
    &["numfilter", "numfilters"],
    &["strides", "stride"],
];
const GEMM: [&[&str]; 3] = [&["m"], &["n"], &["k"]];

impl Head {
    fn read(line: &str) -> Option<Self> {
        let separator = if line.contains(',') { ',' } else { '\t' };
        let plain = |cell: &str| {
            cell.to_lowercase()
                .replace(|c: char| c.is_whitespace() || c == '_', "")
        };
        let cells: Vec<String> = line.split(separator).map(plain).collect();
        let (name, rest) = cells.split_first()?;
        let form: &[&[&str]] = match rest.first()?.as_str() {
            "m" => &GEMM,
            _ => &CONV,
        };
        let named = |(cell, known): (&String, &&[&str])| known.contains(&cell.as_str());
        let legal = ["layername", "layer", "l"].contains(&name.as_str())
            && rest.len() >= form.len()
            && rest.iter().zip(form).all(named);
        legal.then(|| Self {
            separator,
            sizes: form.len(),
            batch: cells.iter().position(|cell| cell == "batchsize"),
        })
    }

    fn layer(&self, line: &str) -> Result<(String, Shape)> {
        let cells: Vec<&str> = line.split(self.separator).map(str::trim).collect();
        let (name, rest) = cells.split_first().context("an empty line")?;
        ensure!(
            rest.len() >= self.sizes,
            "{} cells: a layer has a name and {} numbers",
            cells.len(),
            self.sizes
        );
        let (numbers, remarks) = rest.split_at(self.sizes);
        // SCALE-Sim takes `N:M` behind the sizes for a sparsity, whatever the heading is.
        if let Some(ratio) = remarks
            .iter()
            .find(|cell| cell.contains(':') && **cell != "1:1")
        {
            bail!("Sparsity {ratio}: there are only dense products here, 1:1");
        }
        let batch = self.batch.and_then(|at| cells.get(at));
        if let Some(batch) = batch.filter(|batch| !["", "1"].contains(batch)) {
            bail!(
                "Batch Size {batch}: figures are of a pass of BATCH images, which LOG_BATCH sets; write 1"
            );
        }
        let mut sizes = [0; CONV.len()];
        for (size, cell) in sizes.iter_mut().zip(numbers) {
            let number = cell.parse().ok();
            *size = number.with_context(|| format!("'{cell}' is no whole number"))?;
        }
        let shape = if self.sizes == GEMM.len() {
            Shape::gemm([sizes[0], sizes[1], sizes[2]])
        } else {
            Shape {
                input: [sizes[0], sizes[1]],
                filter: [sizes[2], sizes[3]],
                channels: sizes[4],
                filters: sizes[5],
                stride: sizes[6],
                depthwise: name.contains("DP"),
                dense: false,
            }
        };
        shape.check()?;
        Ok(((*name).to_owned(), shape))
    }
}

fn parse(text: &str, file: &str) -> Result<Vec<(String, Shape)>> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = (1..).zip(text.lines());
    let head = lines.find(|(_, line)| !line.trim().is_empty());
    let (number, head) = head.with_context(|| format!("{file}: an empty file"))?;
    let columns = Head::read(head).with_context(|| {
        format!(
            "{file}:{number}: not a table of layers: its first line is 'Layer name, IFMAP Height, IFMAP Width, \
             Filter Height, Filter Width, Channels, Num Filter, Strides,' or 'Layer, M, N, K,'"
        )
    })?;
    let mut layers = Vec::new();
    for (number, line) in lines {
        if line.trim_matches([',', ' ', '\t', '\r']).is_empty() {
            continue;
        }
        ensure!(
            layers.len() < MAX_LAYERS,
            "{file}:{number}: more than {MAX_LAYERS} layers"
        );
        layers.push(
            columns
                .layer(line)
                .with_context(|| format!("{file}:{number}"))?,
        );
    }
    Ok(layers)
}

#[cfg(test)]
mod tests;
