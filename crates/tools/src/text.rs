//! Bytes of a file as text, and back: in the encoding and with the line ends that it had.

use std::borrow::Cow;

/// How a text file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, as everywhere.
    #[default]
    Utf8,
    Utf8Bom,
    Utf16Le,
    Utf16Be,
    Utf32Le,
    Utf32Be,
    /// Some eight-bit encoding. Read and written as windows-1252, where every byte has a character of its own, so that
    /// what is not touched stays as it was.
    EightBit,
}

/// Text, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    pub(crate) encoding: Encoding,
}

const BOMS: [(Encoding, &[u8]); 5] = [
    // UTF-32 first: its little-endian mark begins with that of UTF-16.
    (Encoding::Utf32Le, &[0xFF, 0xFE, 0, 0]),
    (Encoding::Utf32Be, &[0, 0, 0xFE, 0xFF]),
    (Encoding::Utf8Bom, &[0xEF, 0xBB, 0xBF]),
    (Encoding::Utf16Le, &[0xFF, 0xFE]),
    (Encoding::Utf16Be, &[0xFE, 0xFF]),
];

// A NUL or many control characters this early mean that a file is not text.
const SAMPLE_MAX: usize = 4096;

/// The text of a file; `None` if it is none, or is broken in the encoding that its mark names.
pub(crate) fn decode(bytes: Vec<u8>) -> Option<Decoded> {
    if let Some((encoding, rest)) = BOMS.iter().find_map(|(encoding, bom)| Some((*encoding, bytes.strip_prefix(*bom)?)))
    {
        let text = match encoding {
            Encoding::Utf16Le => utf16(rest, u16::from_le_bytes)?,
            Encoding::Utf16Be => utf16(rest, u16::from_be_bytes)?,
            Encoding::Utf32Le => utf32(rest, u32::from_le_bytes)?,
            Encoding::Utf32Be => utf32(rest, u32::from_be_bytes)?,
            Encoding::Utf8Bom | Encoding::Utf8 | Encoding::EightBit => std::str::from_utf8(rest).ok()?.to_owned(),
        };
        return Some(Decoded { text, encoding });
    }
    if is_binary(&bytes) {
        return None;
    }
    let decoded = match String::from_utf8(bytes) {
        Ok(text) => Decoded { text, encoding: Encoding::Utf8 },
        Err(error) => {
            let (text, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(error.as_bytes());
            Decoded { text: text.into_owned(), encoding: Encoding::EightBit }
        }
    };
    Some(decoded)
}

/// The bytes of a file; `None` if the encoding lacks a character of the text.
pub(crate) fn encode(text: &str, encoding: Encoding) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> =
        BOMS.iter().find(|(other, _)| *other == encoding).map(|(_, bom)| bom.to_vec()).unwrap_or_default();
    match encoding {
        Encoding::Utf8 | Encoding::Utf8Bom => bytes.extend_from_slice(text.as_bytes()),
        Encoding::Utf16Le => bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
        Encoding::Utf16Be => bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
        Encoding::Utf32Le => bytes.extend(text.chars().flat_map(|c| u32::from(c).to_le_bytes())),
        Encoding::Utf32Be => bytes.extend(text.chars().flat_map(|c| u32::from(c).to_be_bytes())),
        Encoding::EightBit => {
            let (encoded, _, lossy) = encoding_rs::WINDOWS_1252.encode(text);
            if lossy {
                return None;
            }
            bytes.extend_from_slice(&encoded);
        }
    }
    Some(bytes)
}

/// Whether bytes without a mark are something other than text.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    let sample = bytes.get(..bytes.len().min(SAMPLE_MAX)).unwrap_or_default();
    let control = |byte: &&u8| matches!(byte, 1..=8 | 14..=26 | 28..=31);
    // Three in ten, as in the peer: escape sequences in a log stay below it.
    sample.contains(&0) || sample.iter().filter(control).count() * 10 > sample.len() * 3
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    char::decode_utf16(units.iter().copied().map(unit)).collect::<Result<_, _>>().ok()
}

fn utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    units.iter().copied().map(|bytes| char::from_u32(unit(bytes))).collect()
}

/// The line ends of a file, as far as they agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// `\n` everywhere, or no line end at all.
    Lf,
    /// `\r\n` everywhere.
    CrLf,
    /// Some of each: nothing is converted.
    Mixed,
}

impl LineEnds {
    pub(crate) fn of(text: &str) -> Self {
        let all = text.matches('\n').count();
        match text.matches("\r\n").count() {
            0 => Self::Lf,
            crlf if crlf == all => Self::CrLf,
            _ => Self::Mixed,
        }
    }

    /// `text` with `\n` for the line ends that [`Self::restore`] brings back.
    pub(crate) fn normalise(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::CrLf => Cow::Owned(text.replace("\r\n", "\n")),
            Self::Lf | Self::Mixed => Cow::Borrowed(text),
        }
    }

    /// `text` with the line ends of the file, whichever a model wrote.
    pub(crate) fn restore(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::CrLf => Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n")),
            Self::Lf | Self::Mixed => Cow::Borrowed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_encoding_reads_back() {
        for encoding in [
            Encoding::Utf8,
            Encoding::Utf8Bom,
            Encoding::Utf16Le,
            Encoding::Utf16Be,
            Encoding::Utf32Le,
            Encoding::Utf32Be,
        ] {
            let text = "grüße 日本 🦀\r\nzweite\n";
            let bytes = encode(text, encoding).unwrap();
            assert_eq!(decode(bytes), Some(Decoded { text: text.to_owned(), encoding }), "{encoding:?}");
        }
    }

    #[test]
    fn eight_bit_files_keep_every_byte() {
        let bytes: Vec<u8> = (b' '..=255).collect();
        let decoded = decode(bytes.clone()).unwrap();
        assert_eq!(decoded.encoding, Encoding::EightBit);
        assert_eq!(encode(&decoded.text, Encoding::EightBit), Some(bytes));
        assert_eq!(encode("日本", Encoding::EightBit), None);
    }

    #[test]
    fn what_is_no_text_is_none() {
        for bytes in [&b"\x7fELF\x02\0\0"[..], b"\xff\xfea", b"\xff\xfe\0\xd8", b"\xef\xbb\xbf\xff", &[1; 50]] {
            assert_eq!(decode(bytes.to_vec()), None, "{bytes:?}");
        }
        assert_eq!(decode(Vec::new()).unwrap().text, "");
        assert!(decode(b"\x1b[31mred\x1b[0m".to_vec()).is_some());
    }

    #[test]
    fn line_ends_come_back() {
        for (text, ends) in
            [("a\nb", LineEnds::Lf), ("", LineEnds::Lf), ("a\r\nb\r\n", LineEnds::CrLf), ("a\r\nb\n", LineEnds::Mixed)]
        {
            assert_eq!(LineEnds::of(text), ends);
            assert_eq!(ends.restore(&ends.normalise(text)), text);
        }
        assert_eq!(LineEnds::CrLf.restore("a\nb\r\nc"), "a\r\nb\r\nc");
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_text_reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(Decoded { text, encoding }) = decode(bytes.clone()) {
                prop_assert_eq!(encode(&text, encoding), Some(bytes));
            }
        }
    }
}
