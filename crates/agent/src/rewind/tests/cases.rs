//! One thing at a time.

use super::*;
use pretty_assertions::assert_eq;

/// Two turns: the first one makes a file and changes one, the second one runs a command.
fn two_turns(house: &House) -> Desk {
    fs::write(house.work().join("notes"), "by hand").unwrap();
    let desk = house.begin();
    desk.prompt("first");
    house.write(&desk, "new/deep/file", "one");
    house.write(&desk, "notes", "by the agent");
    desk.answer("done");
    desk.prompt("second");
    house.shell(&desk, |work| {
        fs::remove_file(work.join("notes")).unwrap();
        fs::write(work.join("made"), "made").unwrap();
        fs::set_permissions(work.join("new/deep/file"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("made", work.join("link")).unwrap();
    });
    desk.answer("done");
    desk
}

#[test]
fn files_and_words_go_back_together_or_alone() {
    let house = House::new();
    let before = tree(&house.work());
    assert!(before.is_empty());
    let desk = two_turns(&house);
    let after = tree(&house.work());

    let rewound = house.rewound(&desk, "2", RewindWhat::Conversation);
    assert_eq!((rewound.number, rewound.prompt.as_str(), rewound.files.len()), (2, "second", 0));
    assert_eq!((desk.prompts(), tree(&house.work())), (vec!["first".to_owned()], after));

    // Words of the second turn are gone, and its files still go back with those of the first.
    let rewound = house.rewound(&desk, "1", RewindWhat::Both);
    assert_eq!(rewound.left, []);
    assert_eq!(desk.prompts(), Vec::<String>::new());
    let now = tree(&house.work());
    assert_eq!(now.keys().collect::<Vec<_>>(), [&house.work().join("notes")]);
    assert_eq!(house.read("notes").as_deref(), Some("by hand"));
}

#[test]
fn files_go_back_and_the_conversation_stays() {
    let house = House::new();
    let desk = two_turns(&house);
    let rewound = house.rewound(&desk, "2", RewindWhat::Files);
    let mut names: Vec<_> = rewound.files.iter().filter_map(|path| path.rsplit('/').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["file", "link", "made", "notes"]);
    assert_eq!(desk.prompts(), ["first", "second"]);
    assert_eq!(house.read("notes").as_deref(), Some("by the agent"));
    assert!(house.read("made").is_none() && fs::symlink_metadata(house.work().join("link")).is_err());
    let mode = fs::metadata(house.work().join("new/deep/file")).unwrap().permissions().mode();
    assert_ne!(mode & 0o777, 0o755);
    // What was taken back is a change like any other: going further back starts from there.
    house.rewound(&desk, "1", RewindWhat::Files);
    assert_eq!(house.read("notes").as_deref(), Some("by hand"));
    assert!(!house.work().join("new").exists());
}

#[test]
fn what_somebody_else_wrote_is_not_overwritten_unless_it_is_asked_for() {
    let house = House::new();
    let desk = two_turns(&house);
    fs::write(house.work().join("made"), "by hand").unwrap();
    let now = tree(&house.work());
    let RewindOutcome::Conflicts(conflicts) = house.rewind(&desk, "1", RewindWhat::Both, false) else {
        panic!("it has to be asked for")
    };
    assert_eq!(conflicts.len(), 1);
    assert_eq!((conflicts[0].path.as_str(), tree(&house.work())), (house.work().join("made").to_str().unwrap(), now));
    assert_eq!(desk.prompts(), ["first", "second"], "nothing at all is taken back");
    assert!(matches!(house.rewind(&desk, "1", RewindWhat::Both, true), RewindOutcome::Done(_)));
    assert_eq!(house.read("made"), None);
    // What was overwritten is kept all the same.
    let blobs = super::super::blobs::Blobs::new(house.kept().join("blobs"));
    assert_eq!(blobs.read(&super::super::blobs::digest(b"by hand")).unwrap(), b"by hand");
}

#[test]
fn words_of_a_hand_between_two_turns_are_not_lost_silently() {
    let house = House::new();
    let desk = house.begin();
    desk.prompt("first");
    house.write(&desk, "file", "agent 1");
    desk.prompt("second");
    fs::write(house.work().join("file"), "hand").unwrap();
    house.write(&desk, "file", "agent 2");
    assert!(matches!(house.rewind(&desk, "1", RewindWhat::Files, false), RewindOutcome::Conflicts(_)));
    house.rewound(&desk, "2", RewindWhat::Files);
    // The second turn had not begun when the hand wrote: it is behind the point.
    assert_eq!(house.read("file").as_deref(), Some("hand"));
}

#[test]
fn a_prompt_that_runs_commands_of_its_own_takes_their_files_back() {
    let house = House::new();
    let desk = house.begin();
    desk.prompt("first");
    desk.recorder.prompt(vec![Part::text("/deploy")], None);
    house.shell(&desk, |work| fs::write(work.join("early"), "x").unwrap());
    desk.event("user", Role::User, "/deploy");
    desk.answer("done");
    house.rewound(&desk, "2", RewindWhat::Files);
    assert_eq!(house.read("early"), None);
}

#[test]
fn calls_that_run_beside_each_other_are_told_apart_from_a_hand() {
    let house = House::new();
    let desk = house.begin();
    desk.prompt("first");
    let call = |tool: &str, files: Option<&str>| WritingCall {
        tool: tool.into(),
        what: "x".into(),
        files: files.map(|file| vec![house.work().join(file)]),
    };
    fs::write(house.work().join("a"), "0").unwrap();
    let command = house.runtime.block_on(desk.keeper.before(call("run_shell_command", None)));
    fs::write(house.work().join("a"), "command").unwrap();
    let edit = house.runtime.block_on(desk.keeper.before(call("write_file", Some("a"))));
    fs::write(house.work().join("a"), "edit").unwrap();
    house.runtime.block_on(desk.keeper.after(edit));
    // The command is dropped: the end of the turn is its end.
    fs::write(house.work().join("b"), "late").unwrap();
    drop(command);
    house.rewound(&desk, "1", RewindWhat::Files);
    assert_eq!((house.read("a").as_deref(), house.read("b")), (Some("0"), None));
}

#[test]
fn what_an_ignore_file_hid_is_not_taken_for_new_when_it_comes_to_light() {
    let house = House::new();
    fs::create_dir(house.work().join("hidden")).unwrap();
    fs::write(house.work().join("hidden/secret"), "s").unwrap();
    fs::write(house.work().join(".gitignore"), "hidden\n").unwrap();
    let desk = house.begin();
    desk.prompt("first");
    // As if the files were older: the command begins a minute from now.
    desk.keeper.with(|ledger, now_ms| ledger.begin("c", None, now_ms + 60_000));
    fs::write(house.work().join(".gitignore"), "\n").unwrap();
    let changes = desk.keeper.with(|ledger, now_ms| ledger.end("c", now_ms + 60_000)).unwrap();
    let names: Vec<_> = changes.iter().map(|(path, ..)| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, [".gitignore"]);
}

#[test]
fn a_folder_that_was_renamed_goes_back_with_its_old_files() {
    let house = House::new();
    fs::create_dir(house.work().join("a")).unwrap();
    fs::write(house.work().join("a/file"), "x").unwrap();
    let before = tree(&house.work());
    let desk = house.begin();
    desk.prompt("first");
    let at = |desk: &Desk, later: u64| desk.keeper.with(|_, now_ms| now_ms + later);
    let late = at(&desk, 60_000);
    let line = desk.keeper.with(|ledger, _| ledger.begin("c", None, late)).line;
    desk.recorder.files(line);
    fs::rename(house.work().join("a"), house.work().join("b")).unwrap();
    let changes = desk.keeper.with(|ledger, _| ledger.end("c", late)).unwrap();
    assert_eq!(changes.len(), 4, "{changes:?}");
    desk.recorder.files(FilesLine { end: Some("c".into()), changes, ..FilesLine::default() });
    house.rewound(&desk, "1", RewindWhat::Files);
    assert_eq!(tree(&house.work()), before);
}

#[test]
fn a_file_that_is_as_it_was_is_not_read_again_and_one_that_is_not_is() {
    let house = House::new();
    fs::write(house.work().join("file"), "one").unwrap();
    let desk = house.begin();
    desk.prompt("first");
    let late = |now_ms: u64| now_ms + 60_000;
    desk.keeper.with(|ledger, now_ms| ledger.begin("a", None, late(now_ms)));
    assert_eq!(desk.keeper.with(|ledger, now_ms| ledger.end("a", late(now_ms))), Some(vec![]));
    // By its stamp it is known: what is under its name in the store is not looked at.
    fs::remove_dir_all(house.kept().join("blobs")).unwrap();
    desk.keeper.with(|ledger, now_ms| ledger.begin("b", None, late(now_ms)));
    let blob = super::super::blobs::Blobs::new(house.kept().join("blobs"));
    assert!(!blob.has(&super::super::blobs::digest(b"one")));
    fs::write(house.work().join("file"), "two").unwrap();
    assert_eq!(desk.keeper.with(|ledger, now_ms| ledger.end("b", late(now_ms))).unwrap().len(), 1);
}

#[test]
fn bounds_leave_files_out_and_the_point_says_so() {
    let mut house = House::new();
    house.bounds = SnapshotBounds { file_bytes: 10, total_bytes: 12, files: 4 };
    for (name, text) in [("large", "12345678901"), ("a", "123456"), ("b", "1234567")] {
        fs::write(house.work().join(name), text).unwrap();
    }
    let desk = house.begin();
    desk.prompt("first");
    house.shell(&desk, |work| {
        for name in ["large", "a", "b"] {
            fs::remove_file(work.join(name)).unwrap();
        }
    });
    let points = house.runtime.block_on(desk.rewinder.points()).unwrap();
    let lasting: Vec<_> = points[0].lasting.iter().map(|effect| (effect.kind, effect.what.as_str())).collect();
    let name = |name: &str| house.work().join(name).display().to_string();
    assert_eq!(
        lasting,
        [("file", name("b").as_str()), ("file", &name("large")), ("command", "run_shell_command something")]
    );
    let rewound = house.rewound(&desk, "1", RewindWhat::Files);
    let left: Vec<_> = rewound.left.iter().map(|left| (left.path.clone(), left.why.as_str())).collect();
    let expected = [(name("b"), "there was no room to keep it"), (name("large"), "it was too large to be kept")];
    assert_eq!((left, house.read("a").as_deref()), (expected.to_vec(), Some("123456")));

    for name in ["1", "2", "3", "4", "5"] {
        fs::write(house.work().join(name), "x").unwrap();
    }
    desk.prompt("second");
    house.shell(&desk, |work| fs::write(work.join("6"), "y").unwrap());
    let points = house.runtime.block_on(desk.rewinder.points()).unwrap();
    assert_eq!(points[1].lasting.last().unwrap().kind, "unwatched");
}

#[test]
fn a_link_that_was_put_into_a_path_keeps_the_way_back_out() {
    let house = House::new();
    let outside = house.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(house.work().join("folder")).unwrap();
    fs::write(house.work().join("folder/file"), "old").unwrap();
    let desk = house.begin();
    desk.prompt("first");
    house.write(&desk, "folder/file", "new");
    fs::write(outside.join("file"), "new").unwrap();
    fs::remove_dir_all(house.work().join("folder")).unwrap();
    std::os::unix::fs::symlink(&outside, house.work().join("folder")).unwrap();
    let rewound = match house.rewind(&desk, "1", RewindWhat::Files, true) {
        RewindOutcome::Done(rewound) => rewound,
        other => panic!("{other:?}"),
    };
    assert_eq!(rewound.left.len(), 1, "{rewound:?}");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "new");
}

#[test]
fn contents_go_with_the_last_session_that_needs_them() {
    let house = House::new();
    let desk = two_turns(&house);
    let branch = desk.conversation();
    house.records().branch(branch, &house.work()).unwrap();
    let blobs = || fs::read_dir(house.kept().join("blobs")).unwrap().flatten();
    let count = || blobs().flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten()).count();
    assert!(count() > 2);
    assert!(matches!(house.records().delete(ID), Err(RecordError::Open(_))));
    drop(desk);
    house.records().delete(ID).unwrap();
    assert_eq!(count(), 0);
}

#[test]
fn a_branch_has_what_was_said_before_the_point_and_a_name_of_its_own() {
    let house = House::new();
    let desk = two_turns(&house);
    let branch = house.runtime.block_on(desk.rewinder.branch(Some("2")));
    let convoke_protocol::BranchOutcome::Branched { session, title } = branch else { panic!("{branch:?}") };
    assert_eq!(title, "first (branch)");
    let loaded = house.records().load(session.as_str(), &house.work()).unwrap();
    let prompts: Vec<_> = loaded.conversation.prompts().into_iter().map(|point| point.text).collect();
    assert_eq!((prompts, desk.prompts()), (vec!["first".to_owned()], vec!["first".to_owned(), "second".to_owned()]));
    for (at, expected) in [("1", "nothing was said before that point"), ("9", "")] {
        match house.runtime.block_on(desk.rewinder.branch(Some(at))) {
            convoke_protocol::BranchOutcome::Unavailable { why } => assert_eq!(why, expected),
            other => assert_eq!((other, at), (convoke_protocol::BranchOutcome::UnknownPoint, "9")),
        }
    }
}
