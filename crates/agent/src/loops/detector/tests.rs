use super::*;
use proptest::prelude::*;
use serde_json::json;

/// What looks alike and is none: what users of other detectors were stopped for.
fn honest() -> Vec<(&'static str, String)> {
    let each = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(|i| line(i) + "\n").collect::<String>();
    vec![
        (
            "edits",
            each(80, &|i| format!("Updated the import in src/module_{i}.rs and moved the helper to the new package.")),
        ),
        (
            "edits by turns",
            each(60, &|i| {
                format!("Now I will fix file {i}: the call to `parse_config(path, {i})` takes a second argument now.")
            }),
        ),
        ("list", each(200, &|_| "- [ ] check the same thing again and again, as the checklist says".to_owned())),
        ("starred list", each(100, &|_| "  * the same item with the same words, over and over again".to_owned())),
        ("numbered list", each(100, &|i| format!("{}. Run the tests of the package and look at what they say", i + 1))),
        ("table", each(200, &|_| "| true | false | the same cell | the same cell | the same cell |".to_owned())),
        ("table with numbers", each(200, &|i| format!("| {i} | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |"))),
        ("headings", each(60, &|_| "## Another section with exactly the same long heading as before".to_owned())),
        ("quotes", each(60, &|_| "> said the same thing once more, and nobody was surprised by it".to_owned())),
        ("dividers", each(200, &|i| if i % 2 == 0 { "=".repeat(70) } else { "-".repeat(70) })),
        ("dots", "Downloading ".to_owned() + &".".repeat(600) + " done"),
        ("hex dump", each(100, &|i| format!("{:08x}  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00", i * 16))),
        ("bare hex", each(60, &|_| "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff".to_owned())),
        ("array", each(40, &|_| "0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,".to_owned())),
        (
            "code",
            format!(
                "Here it is:\n```rust\n{}```\nDone.",
                each(200, &|_| "        assert_eq!(left.value(), right.value(), \"they differ\");".to_owned())
            ),
        ),
        (
            "code in tildes",
            format!(
                "~~~\n{}~~~\n",
                each(200, &|_| "console.log('the same line of code in a fence, many times');".to_owned())
            ),
        ),
        (
            "log",
            each(300, &|i| {
                format!(
                    "2026-11-21 10:{:02}:{:02} INFO compiled crate number {i} of 300 in the workspace",
                    i / 60,
                    i % 60
                )
            }),
        ),
        (
            "progress",
            each(101, &|i| format!("Progress of the migration: {i}% of all the rows have been copied so far")),
        ),
        (
            "array of objects",
            "[\n".to_owned()
                + &each(80, &|i| {
                    format!("  {{\"id\": {i}, \"active\": true, \"tags\": [], \"owner\": null, \"parent\": null}},")
                })
                + "]",
        ),
        (
            "array of numbers",
            each(80, &|_| "  [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0],".to_owned()),
        ),
        (
            "pretty objects",
            each(60, &|i| {
                format!(
                    "{{\n  \"name\": \"step-{i}\",\n  \"uses\": \"actions/checkout@v4\",\n  \"continue-on-error\": false\n}},"
                )
            }),
        ),
        (
            "yaml",
            each(60, &|i| {
                format!(
                    "service-{i}:\n  image: registry.local/base:latest\n  restart: unless-stopped\n  networks: [internal]"
                )
            }),
        ),
        ("csv", each(200, &|i| format!("{i},true,false,unknown,not available,not available,0.00"))),
        (
            "diff",
            each(60, &|i| {
                format!(
                    "@@ -{i},3 +{i},3 @@\n-    let value = old_function(argument, other_argument);\n+    let value = new_function(argument, other_argument);"
                )
            }),
        ),
        ("table without an edge", each(80, &|i| format!("row {i} | not applicable | not applicable | not applicable"))),
        ("test run", each(200, &|i| format!("test parser::tests::case_{i:03}_is_read_and_written_again ... ok"))),
        (
            "sql",
            each(80, &|i| {
                format!("INSERT INTO settings (id, name, value, updated_at) VALUES ({i}, 'default', NULL, now());")
            }),
        ),
        (
            "markup",
            each(80, &|i| {
                format!(
                    "<tr><td>{i}</td><td class=\"empty\"></td><td class=\"empty\"></td><td class=\"empty\"></td></tr>"
                )
            }),
        ),
        ("imports", each(80, &|i| format!("import {{ component{i} }} from '../components/shared/component{i}';"))),
        ("xxd", each(100, &|i| format!("{:08x}: 4142 4344 4142 4344 4142 4344 4142 4344  ABCDABCDABCDABCD", i * 16))),
        ("spinner", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏".repeat(60)),
        ("few repeats", "I will run the tests now and look at what they say about it. ".repeat(8)),
        (
            "prose",
            each(40, &|i| {
                format!("Paragraph {i} says something of its own about topic {} and nothing about {}.", i * 7, i * 13)
            }),
        ),
    ]
}

/// What must be caught.
fn loops() -> Vec<(&'static str, String)> {
    vec![
        ("a sentence", "I will read the file again to make sure it is right. ".repeat(14)),
        ("a sentence per line", "Let me check the configuration once more before going on.\n".repeat(14)),
        ("a paragraph", "The test still fails. I should look at the parser again.\nThen I will run it and see whether it passes this time.\n\n".repeat(14)),
        ("two sentences by turns", "First I open the file and look at it carefully. Then I close the file and think about it. ".repeat(14)),
        ("short words", "I am done here. ".repeat(40)),
        ("other letters", "我将再次读取文件以确保它是正确的并且没有任何遗漏的地方。".repeat(30)),
        ("behind a list", "- one\n- two\n".to_owned() + &"And now I begin again with the very same plan as before. ".repeat(14)),
        ("behind code", "```\nx\n```\n".to_owned() + &"And now I begin again with the very same plan as before. ".repeat(14)),
        ("one letter", "a".repeat(4_000)),
        ("a zero", "0 ".repeat(4_000)),
        ("rows of zeros without an end", "  [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0],\n".repeat(200)),
    ]
}

fn verdict(pieces: impl IntoIterator<Item = impl AsRef<str>>) -> Option<String> {
    let mut lines = Lines::default();
    pieces.into_iter().find_map(|piece| lines.add(piece.as_ref()))
}

#[test]
fn honest_work_is_left_alone() {
    for (name, text) in honest() {
        assert_eq!(verdict([&text]), None, "{name}");
    }
}

#[test]
fn loops_are_caught() {
    for (name, text) in loops() {
        assert!(verdict([&text]).is_some(), "{name}");
    }
}

#[test]
fn a_repeated_sentence_is_caught_after_about_ten() {
    let sentence = "This is one sentence of precisely fifty characters";
    assert_eq!(sentence.chars().count(), 50);
    let mut lines = Lines::default();
    let at = (1..30).find(|_| lines.add(sentence).is_some());
    assert_eq!(at, Some(10));
}

#[test]
fn what_lies_between_decides() {
    let with = |names: usize| {
        let line =
            |i: usize| format!("Replaced the deprecated call by the new one everywhere in file_{:02}.rs. ", i % names);
        (0..40).map(line).collect::<String>()
    };
    assert!(verdict([with(5)]).is_some());
    assert!(verdict([with(6)]).is_none());
}

#[test]
fn calls_repeat_in_cycles_up_to_five() {
    let mut detector = Detector::default();
    let mut at = |names: &[&str]| {
        detector = Detector::default();
        names.iter().cycle().take(60).position(|name| detector.call(name, &json!({})).is_some()).map(|index| index + 1)
    };
    assert_eq!(at(&["a"]), Some(5));
    assert_eq!(at(&["a", "b"]), Some(10));
    assert_eq!(at(&["a", "b", "c", "d", "e"]), Some(25));
    assert_eq!(at(&["a", "b", "c", "d", "e", "f"]), None);
}

#[test]
fn other_arguments_are_another_call_and_text_is_forgotten_with_one() {
    let mut detector = Detector::default();
    for n in 0..100 {
        assert_eq!(detector.call("edit", &json!({"line": n})), None);
    }
    let sentence = "I will read the file again to make sure it is right. ";
    for n in 0..40 {
        assert_eq!(detector.text(&sentence.repeat(5)), None);
        assert_eq!(detector.call("read", &json!({"line": n})), None);
    }
}

#[test]
fn strikes_are_counted_and_each_needs_as_much_as_the_first() {
    let mut detector = Detector::default();
    let strikes: Vec<_> = (1..=10)
        .filter_map(|n| detector.call("read_file", &json!({"file_path": "a"})).map(|strike| (n, strike.number)))
        .collect();
    assert_eq!(strikes, [(5, 1), (10, 2)]);
    let strike = loops().first().and_then(|(_, text)| detector.text(text)).unwrap();
    assert_eq!((strike.number, strike.found.kind()), (3, "chanting_identical_sentences"));
    assert!(strike.found.detail().starts_with("Repeating content detected: \""), "{}", strike.found.detail());
}

/// Pieces of text that bring every kind of line about.
fn any_text() -> impl Strategy<Value = String> {
    let pool: Vec<String> = loops().into_iter().chain(honest()).map(|(_, text)| text).collect();
    let piece = prop_oneof![
        prop::sample::select(pool).prop_map(|text| text.chars().take(700).collect::<String>()),
        "[ \\t\\n`~|#>*+=0-9.)-]{0,12}",
        "[a-z \\n]{0,60}",
    ];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn cuts_make_no_difference(text in any_text(), cuts in prop::collection::vec(1..40_usize, 1..50)) {
        let whole = verdict([&text]);
        let chars: Vec<char> = text.chars().collect();
        let mut rest = chars.as_slice();
        let mut pieces = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece.iter().collect::<String>());
            rest = left;
        }
        prop_assert_eq!(&verdict(&pieces), &whole);
        prop_assert_eq!(&verdict(chars.iter().map(char::to_string)), &whole);
    }

    #[test]
    fn what_comes_back_at_once_is_found_wherever_it_begins(before in "[a-zA-Z ,.]{0,400}", count in 12..20_usize) {
        let sentence = "The build is still broken, so I look at the log again. ";
        prop_assert!(verdict([before, sentence.repeat(count)]).is_some());
    }
}
