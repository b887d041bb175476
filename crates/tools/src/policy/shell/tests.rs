//! What is told of a command's parts, and that no text does harm.

use proptest::prelude::*;

use super::*;

#[test]
fn programs_are_listed_once_and_in_order() {
    for (text, programs) in [
        ("git status && cargo test | tee log; git log", &["git", "cargo", "tee"][..]),
        ("cd x && rm -rf $(cat y | head -1) > z", &["cd", "rm", "cat", "head"]),
        ("sudo env X=1 make", &["sudo", "env", "make"]),
        ("$X y", &[]),
        ("", &[]),
    ] {
        let mut found = Script::parse(text).programs();
        let mut wanted: Vec<String> = programs.iter().map(|program| (*program).to_owned()).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{text}");
    }
}

#[test]
fn large_and_deep_texts_are_unclear_and_not_fatal() {
    let deep = |open: &str, close: &str, n: usize| format!("{}rm{}", open.repeat(n), close.repeat(n));
    for text in [
        "a".repeat(TEXT_MAX + 1),
        "a;".repeat(TEXT_MAX / 2),
        deep("(", ")", 20_000),
        deep("$(", ")", 10_000),
        deep("{ ", "; }", 5_000),
        deep("\"$(", ")\"", 5_000),
        "(".repeat(30_000),
        "<<a ".repeat(10_000),
        "$((".repeat(10_000),
        "if ".repeat(10_000),
        "'".repeat(30_001),
        "`".repeat(30_001),
        format!("{}x", "sudo ".repeat(8_000)),
        format!("{}x", "eval ".repeat(8_000)),
        "${".repeat(20_000),
        "[[ ".repeat(10_000),
        "case x in ".repeat(5_000),
    ] {
        let script = Script::parse(&text);
        assert!(script.unclear().is_some(), "{:.40}", text);
        assert!(script.parts().len() <= PARTS_MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_does_harm(text in any::<String>()) {
        let _ = Script::parse(&text);
    }

    #[test]
    fn no_soup_of_syntax_does_harm(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "rm", " ", "x", "\n", ";", "&&", "||", "|", "&", "(", ")", "{", "}", "$(", "`", "'", "\"", "\\", "<<EOF\n",
                "EOF\n", "<", ">", ">>", "<(", "<<<", "$", "${", "X=", "bash -c ", "sudo ", "eval ", "if ", "then ", "fi",
                "for x in ", "do ", "done", "case ", " in ", "esac", "[[ ", " ]]", "!", "#", "*", "é", "\u{a0}", "$((", "))",
            ]),
            0..60,
        ),
    ) {
        let _ = Script::parse(&pieces.concat());
    }

    /// A refused program is found wherever a shell would run it.
    #[test]
    fn what_follows_an_operator_is_a_part(
        before in "[a-z]{1,6}( [a-z]{1,6}){0,2}",
        operator in proptest::sample::select(vec![";", "&&", "||", "|", "&", "\n", "; (", "&& {", "|&", "; !"]),
        wrapper in proptest::sample::select(vec!["", "sudo ", "env ", "nohup ", "timeout 5 ", "command ", "X=1 ", "xargs ", "nice -n 3 "]),
    ) {
        prop_assume!(!["if", "do", "fi", "in", "then", "else", "case", "esac", "for", "while", "until", "done", "time",
            "function", "select", "elif", "coproc", "declare", "export", "local", "unset", "typeset", "readonly"]
            .iter().any(|word| before.split(' ').any(|w| w == *word)));
        let close = match operator { "; (" => ")", "&& {" => "; }", _ => "" };
        let text = format!("{before} {operator} {wrapper}rm x{close}");
        let script = Script::parse(&text);
        prop_assert!(script.unclear().is_none(), "{:?}: {:?}", text, script);
        let wanted = ["rm".to_owned()];
        prop_assert!(script.parts().iter().any(|part| part.role == Role::Runs && part.might_run(&wanted)), "{:?}", script);
    }

    #[test]
    fn quotes_hide_syntax_but_not_the_words(word in "[a-z;&|<>(){}#*?~\\[ ]{1,12}") {
        let script = Script::parse(&format!("echo '{word}' \"{word}\""));
        let part = script.only().cloned();
        prop_assert_eq!(part.as_ref().and_then(Part::literals), Some(vec!["echo", word.as_str(), word.as_str()]));
    }
}
