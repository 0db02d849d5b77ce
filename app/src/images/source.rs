//! The images that a user names, decoded one at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vta_compiler::graph::{Data, Element};

use super::array::{ImageArray, Images, RawImage};
use super::npy::Store;
use super::photo;
use super::picture::{Picture, Pixels};
use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};

/// Images in a fixed order: of photos, folders and arrays. Of these only what says how many there
/// are is read before an image is asked for.
#[derive(Debug, Default)]
pub struct Source {
    parts: Vec<Part>,
    /// Names of class folders, and the class that each stands for.
    classes: BTreeMap<String, usize>,
    count: usize,
    limit: usize,
}

#[derive(Debug)]
enum Part {
    /// A file and the name of its class folder.
    Photo(PathBuf, Option<String>),
    /// The images of an array, and the file for errors.
    Array(ImageArray, PathBuf),
    Picture(Picture),
}

impl Part {
    fn count(&self) -> usize {
        match self {
            Self::Photo(..) | Self::Picture(_) => 1,
            Self::Array(array, _) => array.count,
        }
    }
}

impl Source {
    /// The images of all paths in the order given, `limit` at most; folders in the order of their
    /// file names.
    ///
    /// A folder that holds folders of images gives classes: each folder is one, numbered in the
    /// order of their names (over all paths), until [`Source::name_classes`] says otherwise.
    ///
    /// # Errors
    /// A path that can't be read, an array of another shape or type, a folder without images, or
    /// with both images and class folders.
    pub fn open(paths: &[PathBuf], limit: Option<usize>) -> Result<Self> {
        let mut source = Self::default();
        let mut left = limit.unwrap_or(usize::MAX);
        for path in paths {
            if left == 0 {
                break;
            }
            let first = source.parts.len();
            if path.is_dir() {
                source.add_folder(path)?
            } else {
                source.parts.push(file(path)?)
            }
            let found = source.parts[first..].iter().map(Part::count);
            left = left.saturating_sub(found.sum());
        }
        for (number, class) in source.classes.values_mut().enumerate() {
            *class = number;
        }
        source.limit = limit.unwrap_or(usize::MAX);
        source.count();
        ensure!(source.count > 0, "there is no image to run");
        Ok(source)
    }

    /// Says what dimensions an image has, so that arrays of other ranks than those of images are
    /// divided into images as they are meant: where all dimensions but the first are the image's
    /// (those of 1 aside), the first counts images; where all are, the array is one.
    ///
    /// # Errors
    /// An array whose values are too many for an image; it names the file.
    pub fn shape(&mut self, image: &[usize]) -> Result<()> {
        for part in &mut self.parts {
            if let Part::Array(array, path) = part {
                array
                    .shape(image)
                    .with_context(|| path.display().to_string())?;
            }
        }
        self.count();
        ensure!(self.count > 0, "there is no image to run");
        Ok(())
    }

    fn count(&mut self) {
        let all = self.parts.iter().map(Part::count).sum::<usize>();
        self.count = all.min(self.limit);
    }

    /// Images that are in memory.
    pub fn of_pictures(pictures: Vec<Picture>) -> Self {
        Self {
            count: pictures.len(),
            parts: pictures.into_iter().map(Part::Picture).collect(),
            classes: BTreeMap::new(),
            limit: usize::MAX,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Gives class folders the classes of a model: those of their names, if these are labels of
    /// it, else their number in the order of the names.
    ///
    /// # Errors
    /// Folders of which only some are labels, or that are not as many as the model has classes.
    pub fn name_classes(&mut self, labels: &[String], outputs: usize) -> Result<()> {
        if self.classes.is_empty() {
            return Ok(());
        }
        let label = |name: &str| labels.iter().position(|l| l.eq_ignore_ascii_case(name));
        let Some(unknown) = self.classes.keys().find(|name| label(name).is_none()) else {
            for (name, class) in &mut self.classes {
                *class = label(name).unwrap_or(*class);
            }
            return Ok(());
        };
        if let Some(known) = self.classes.keys().find(|name| label(name).is_some()) {
            bail!("class folder '{unknown}' is no label of the model, but '{known}' is");
        }
        ensure!(
            self.classes.len() == outputs,
            "{} class folders for {outputs} classes; give a folder for each class, or call them \
             as the model's labels",
            self.classes.len()
        );
        Ok(())
    }

    /// Reads the images from the first.
    pub fn reader(&self) -> Reader<'_> {
        Reader {
            source: self,
            part: 0,
            array: None,
            next: 0,
        }
    }

    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let (files, folders) = entries(folder)?;
        let name = || folder.display().to_string();
        let mut classes = Vec::new();
        for class in folders {
            let images = entries(&class)?.0;
            // A folder of something else beside images is left alone.
            if files.is_empty() || !images.is_empty() {
                classes.push((class, images));
            }
        }
        ensure!(
            files.is_empty() || classes.is_empty(),
            "{}: both images and folders of images, such as {}; class folders stand alone",
            name(),
            classes
                .first()
                .map_or(String::new(), |(c, _)| c.display().to_string())
        );
        ensure!(
            !files.is_empty() || classes.iter().any(|(_, images)| !images.is_empty()),
            "{}: the folder has no image (png, jpeg, webp, bmp or tiff)",
            name()
        );
        self.parts
            .extend(files.into_iter().map(|f| Part::Photo(f, None)));
        for (class, images) in classes {
            ensure!(
                !images.is_empty(),
                "{}: a class folder without images",
                class.display()
            );
            let class = file_name(&class);
            let photos = images.into_iter();
            self.parts
                .extend(photos.map(|f| Part::Photo(f, Some(class.clone()))));
            self.classes.insert(class, 0);
        }
        Ok(())
    }
}

/// The images and the folders of a folder, both in the order of their names; hidden folders are
/// left out.
fn entries(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let name = || folder.display().to_string();
    let entries = std::fs::read_dir(folder).with_context(name)?;
    let paths = entries.map(|e| e.map(|e| e.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().with_context(name)?;
    paths.sort();
    let hidden = |path: &PathBuf| file_name(path).starts_with('.');
    let (folders, mut files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|p| p.is_dir());
    files.retain(|f| f.is_file() && is_image(f));
    Ok((files, folders.into_iter().filter(|f| !hidden(f)).collect()))
}

/// Whether a path is an image by its extension.
pub fn is_image(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let mut known = ["png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff"].into_iter();
    known.any(|name| extension.eq_ignore_ascii_case(name))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What a file that is named alone holds.
fn file(path: &Path) -> Result<Part> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let array = match extension.to_str() {
        Some("npy") => ImageArray::of_npy(path)?,
        Some("npz") => {
            let store = Store::File(path.to_owned());
            ImageArray::of_npz(&store).with_context(|| path.display().to_string())?
        }
        _ => {
            // Found now, not behind an hour of work.
            crate::files::open_regular(path)?;
            return Ok(Part::Photo(path.to_owned(), None));
        }
    };
    Ok(Part::Array(array, path.to_owned()))
}

/// Images from the first to the last; whoever takes one may decode it elsewhere.
pub struct Reader<'a> {
    source: &'a Source,
    part: usize,
    /// Of the part, when that is an array of which images were taken.
    array: Option<Images<'a>>,
    next: usize,
}

/// An image that isn't decoded yet.
#[derive(Debug)]
pub struct Item {
    /// Its number, from 0.
    pub index: usize,
    /// For listings: the file's name, or the array's index.
    pub name: String,
    /// The true class, where it is known.
    pub label: Option<usize>,
    raw: Raw,
}

#[derive(Debug)]
enum Raw {
    Photo(PathBuf),
    Array(RawImage, PathBuf),
    Picture(Picture),
}

impl Reader<'_> {
    /// How many images were taken.
    pub fn position(&self) -> usize {
        self.next
    }

    /// The next image; `None` behind the last.
    ///
    /// # Errors
    /// An array that can't be read, ends early or is damaged; it names the file.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        let Some(part) = self.source.parts.get(self.part) else {
            return Ok(None);
        };
        if self.next == self.source.count {
            return Ok(None);
        }
        let index = self.next;
        let (name, label, raw, last) = match part {
            Part::Photo(path, class) => {
                let class = class
                    .as_ref()
                    .and_then(|name| self.source.classes.get(name));
                (
                    file_name(path),
                    class.copied(),
                    Raw::Photo(path.clone()),
                    true,
                )
            }
            Part::Picture(picture) => {
                let name = picture.name.clone();
                (name, picture.label, Raw::Picture(picture.clone()), true)
            }
            Part::Array(array, path) => {
                let name = || path.display().to_string();
                let images = match &mut self.array {
                    Some(images) => images,
                    none => none.insert(array.images().with_context(name)?),
                };
                let image = images.next_image().with_context(name)?;
                let image = image.context("the array has no more images")?;
                let (name, label) = (format!("#{}", image.index), image.label);
                let last = image.index + 1 == array.count;
                (name, label, Raw::Array(image, path.clone()), last)
            }
        };
        if last {
            self.part += 1;
            self.array = None;
        }
        self.next += 1;
        Ok(Some(Item {
            index,
            name,
            label,
            raw,
        }))
    }
}

impl Item {
    /// Whole numbers of some type, so many of them.
    ///
    /// # Errors
    /// What is no array of whole numbers, numbers that the type doesn't hold, and another number of
    /// them; each names the file.
    pub fn integers(self, element: Element, count: usize) -> Result<Data> {
        let name = self.name;
        let Raw::Array(image, path) = self.raw else {
            bail!(
                "{name}: the network takes {} here, of an array",
                element.name()
            );
        };
        let data = image.integers(element, count);
        data.with_context(|| path.display().to_string())
    }

    /// Decodes the image.
    ///
    /// # Errors
    /// A file that is no image, damaged or truncated, values that are no pixels; each names the
    /// file.
    pub fn decode(self) -> Result<Picture> {
        let (chw, pixels) = match self.raw {
            Raw::Picture(picture) => return Ok(picture),
            Raw::Photo(path) => {
                let photo = photo::read(&path)?;
                let [h, w] = photo.hw;
                ([3, h, w], Pixels::Interleaved(photo.rgb))
            }
            Raw::Array(image, path) => {
                let name = || path.display().to_string();
                (image.chw, image.decode().with_context(name)?)
            }
        };
        Ok(Picture {
            name: self.name,
            chw,
            pixels,
            label: self.label,
        })
    }
}
