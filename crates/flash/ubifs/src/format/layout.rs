//! Fields at fixed offsets: one table per node generates its struct, decoder and encoder.

/// A fixed-width value.
pub(super) trait Field: Sized {
    /// Width in bytes.
    const BYTES: usize;
    /// Decodes exactly [`Self::BYTES`] bytes.
    fn load(raw: &[u8]) -> Option<Self>;
    /// Encodes to exactly [`Self::BYTES`] bytes.
    fn store(&self, raw: &mut [u8]);
}

macro_rules! little_endian {
    ($($number:ty),*) => {$(
        impl Field for $number {
            const BYTES: usize = size_of::<$number>();
            fn load(raw: &[u8]) -> Option<Self> {
                raw.try_into().ok().map(<$number>::from_le_bytes)
            }
            fn store(&self, raw: &mut [u8]) {
                raw.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

little_endian!(u8, u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const BYTES: usize = N;
    fn load(raw: &[u8]) -> Option<Self> {
        raw.try_into().ok()
    }
    fn store(&self, raw: &mut [u8]) {
        raw.copy_from_slice(self);
    }
}

/// The field at byte `at`.
pub(super) fn get<F: Field>(raw: &[u8], at: usize) -> Option<F> {
    raw.get(at..at.checked_add(F::BYTES)?).and_then(F::load)
}

/// Defines `pub struct Name { fields }` with `BYTES`, `fields_of` and `put_fields`. Bytes outside the fields are
/// written as zero.
macro_rules! node_layout {
    (
        $(#[$doc:meta])*
        $name:ident, $bytes:literal {
            $( $(#[$field_doc:meta])* $field:ident: $kind:ty = $at:literal, )*
        }
        $( then { $( $(#[$tail_doc:meta])* $tail:ident: $tail_kind:ty, )* } )?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $kind, )*
            $( $( $(#[$tail_doc])* pub $tail: $tail_kind, )* )?
        }

        impl $name {
            /// Length of the fixed part, header included.
            pub const BYTES: usize = $bytes;

            fn fields_of(raw: &[u8] $( $(, $tail: $tail_kind)* )?) -> Option<Self> {
                let raw = raw.get(..Self::BYTES)?;
                Some(Self {
                    $( $field: $crate::format::layout::get(raw, $at)?, )*
                    $( $( $tail, )* )?
                })
            }

            fn put_fields(&self) -> Vec<u8> {
                use $crate::format::layout::Field;
                let mut raw = vec![0; Self::BYTES];
                $( self.$field.store(&mut raw[$at..$at + <$kind as Field>::BYTES]); )*
                raw
            }
        }
    };
}

pub(super) use node_layout;
