//! What kind of file is this, if it is not text? Told from its first bytes, as names can lie.

/// The MIME type of media that models take.
pub(super) fn mime_type(bytes: &[u8]) -> Option<&'static str> {
    const PLAIN: [(&[u8], &str); 11] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"ID3", "audio/mpeg"),
        (b"\xff\xfb", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"fLaC", "audio/flac"),
        (b"\x1a\x45\xdf\xa3", "video/webm"),
        (b"\x00\x00\x01\xba", "video/mpeg"),
    ];
    if let Some((_, mime)) = PLAIN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some(mime);
    }
    match (bytes.get(..4)?, bytes.get(8..12)?) {
        (b"RIFF", b"WEBP") => Some("image/webp"),
        (b"RIFF", b"WAVE") => Some("audio/wav"),
        (b"RIFF", b"AVI ") => Some("video/x-msvideo"),
        (_, b"heic") if bytes.get(4..8) == Some(b"ftyp") => Some("image/heic"),
        (_, b"qt  ") if bytes.get(4..8) == Some(b"ftyp") => Some("video/quicktime"),
        (_, b"M4A ") if bytes.get(4..8) == Some(b"ftyp") => Some("audio/mp4"),
        _ if bytes.get(4..8) == Some(b"ftyp") => Some("video/mp4"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::mime_type;

    #[test]
    fn known_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", Some("audio/wav")),
            (b"\0\0\0\x20ftypisom", Some("video/mp4")),
            (b"\0\0\0\x20ftypM4A ", Some("audio/mp4")),
            (b"%PDF-1.7", Some("application/pdf")),
            (b"\x7fELF\x02\x01\x01\0\0\0\0\0", None),
            (b"hi", None),
            (b"", None),
        ] {
            assert_eq!(mime_type(bytes), expected, "{bytes:?}");
        }
    }
}
