//! What a hook's command line becomes before the shell reads it.
//!
//! The names of folders are variables of the child, so the shell could put them in by itself; but hooks are written
//! without quotes, for programs that put the text in, and a folder may have a blank in its name.

/// Puts `variables` in for `$NAME` and `${NAME}`, quoted as the place needs it.
///
/// Inside of double quotes the shell does it better itself; the variables are in its environment.
pub(super) fn expand(command: &str, variables: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(command.len());
    let mut quote = None;
    let mut rest = command;
    while let Some(next) = rest.chars().next() {
        let taken = match (next, quote) {
            ('\\', None | Some('"')) => next.len_utf8() + rest.chars().nth(1).map_or(0, char::len_utf8),
            ('\'' | '"', None) => {
                quote = Some(next);
                1
            }
            (_, Some(open)) if next == open => {
                quote = None;
                1
            }
            ('$', None | Some('\'')) => match reference(rest, variables) {
                Some((taken, value)) => {
                    let inner = value.replace('\'', r"'\''");
                    match quote {
                        Some(_) => out.push_str(&inner),
                        None if is_plain(value) => out.push_str(value),
                        None => out.extend(["'", &inner, "'"]),
                    }
                    rest = rest.get(taken..).unwrap_or_default();
                    continue;
                }
                None => 1,
            },
            _ => next.len_utf8(),
        };
        let (done, left) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        out.push_str(done);
        rest = left;
    }
    out
}

/// How long the reference at the start of `text` is, and what it stands for.
fn reference<'a>(text: &str, variables: &[(&str, &'a str)]) -> Option<(usize, &'a str)> {
    let after = text.strip_prefix('$')?;
    let (name, taken) = match after.strip_prefix('{') {
        Some(inner) => {
            let (name, _) = inner.split_once('}')?;
            (name, name.len() + 3)
        }
        None => {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
            (after.get(..end)?, end + 1)
        }
    };
    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (taken, *value))
}

fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"_/.-+:@%,".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_name_is_put_in_as_its_place_needs_it() {
        let plain = [("DIR", "/a/b")];
        let odd = [("DIR", "/a b/it's")];
        for (command, variables, expected) in [
            ("$DIR/x.sh", &plain, "/a/b/x.sh"),
            ("${DIR}/x.sh $DIRS", &plain, "/a/b/x.sh $DIRS"),
            ("$DIR/x.sh", &odd, r"'/a b/it'\''s'/x.sh"),
            // The shell does it.
            ("\"$DIR/x.sh\"", &odd, "\"$DIR/x.sh\""),
            (r"'$DIR/x.sh'", &odd, r"'/a b/it'\''s/x.sh'"),
            (r"\$DIR ${DIR", &plain, r"\$DIR ${DIR"),
            ("echo \"it's $DIR\" $DIR", &plain, "echo \"it's $DIR\" /a/b"),
            ("echo $1 $ $", &plain, "echo $1 $ $"),
            ("ünï \\", &plain, "ünï \\"),
        ] {
            assert_eq!(expand(command, variables), expected, "{command}");
        }
    }
}
