//! Data of constants, and types of elements.

/// Constant data.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// float32.
    F32(Vec<f32>),
    /// int8.
    I8(Vec<i8>),
    /// uint8.
    U8(Vec<u8>),
    /// int16.
    I16(Vec<i16>),
    /// uint16.
    U16(Vec<u16>),
    /// int32.
    I32(Vec<i32>),
    /// int64 (shapes).
    I64(Vec<i64>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// The type of a value's elements. Floats of other widths are read as float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// float32.
    #[default]
    F32,
    /// int8.
    I8,
    /// uint8.
    U8,
    /// int16.
    I16,
    /// uint16.
    U16,
    /// int32.
    I32,
    /// int64.
    I64,
    /// Truth values.
    Bool,
}

impl Element {
    /// Whether it has 16 bits.
    pub const fn has_16_bits(self) -> bool {
        matches!(self, Self::I16 | Self::U16)
    }

    /// Its name, as numpy has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::Bool => "bool",
        }
    }

    /// Bytes of an element in memory.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 => 2,
            Self::I64 => 8,
        }
    }
}

impl Data {
    /// The type of the elements.
    pub const fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I8(_) => Element::I8,
            Self::U8(_) => Element::U8,
            Self::I16(_) => Element::I16,
            Self::U16(_) => Element::U16,
            Self::I32(_) => Element::I32,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
        }
    }

    /// How many elements there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U8(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the elements behind so many.
    pub fn truncate(&mut self, count: usize) {
        match self {
            Self::F32(v) => v.truncate(count),
            Self::I8(v) => v.truncate(count),
            Self::U8(v) => v.truncate(count),
            Self::I16(v) => v.truncate(count),
            Self::U16(v) => v.truncate(count),
            Self::I32(v) => v.truncate(count),
            Self::I64(v) => v.truncate(count),
            Self::Bool(v) => v.truncate(count),
        }
    }

    /// As many zeros of a type.
    pub fn zeros(element: Element, count: usize) -> Self {
        match element {
            Element::F32 => Self::F32(vec![0.0; count]),
            Element::I8 => Self::I8(vec![0; count]),
            Element::U8 => Self::U8(vec![0; count]),
            Element::I16 => Self::I16(vec![0; count]),
            Element::U16 => Self::U16(vec![0; count]),
            Element::I32 => Self::I32(vec![0; count]),
            Element::I64 => Self::I64(vec![0; count]),
            Element::Bool => Self::Bool(vec![false; count]),
        }
    }

    /// Whole numbers in a type.
    ///
    /// # Errors
    /// The first number that the type doesn't hold. Every type holds those that it rounds (float32) or
    /// asks whether they are 0 (truth values).
    pub fn of_integers(element: Element, values: &[i64]) -> Result<Self, i64> {
        fn narrow<T: TryFrom<i64>>(values: &[i64]) -> Result<Vec<T>, i64> {
            let one = |&value: &i64| T::try_from(value).map_err(|_| value);
            values.iter().map(one).collect()
        }
        Ok(match element {
            Element::F32 => Self::F32(values.iter().map(|&v| v as f32).collect()),
            Element::I8 => Self::I8(narrow(values)?),
            Element::U8 => Self::U8(narrow(values)?),
            Element::I16 => Self::I16(narrow(values)?),
            Element::U16 => Self::U16(narrow(values)?),
            Element::I32 => Self::I32(narrow(values)?),
            Element::I64 => Self::I64(values.to_vec()),
            Element::Bool => Self::Bool(values.iter().map(|&v| v != 0).collect()),
        })
    }

    /// The same numbers, those of 16 bits as int32.
    pub fn without_16_bits(self) -> Self {
        match self {
            Self::I16(v) => Self::I32(v.into_iter().map(Into::into).collect()),
            Self::U16(v) => Self::I32(v.into_iter().map(Into::into).collect()),
            other => other,
        }
    }

    /// Whole numbers of any width; `None` for floats.
    pub fn integers(&self) -> Option<Vec<i64>> {
        Some(match self {
            Self::F32(_) => return None,
            Self::I8(v) => v.iter().map(|&v| v.into()).collect(),
            Self::U8(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I16(v) => v.iter().map(|&v| v.into()).collect(),
            Self::U16(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I32(v) => v.iter().map(|&v| v.into()).collect(),
            Self::I64(v) => v.clone(),
            Self::Bool(v) => v.iter().map(|&v| v.into()).collect(),
        })
    }
}
