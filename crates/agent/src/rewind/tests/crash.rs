//! A process that is killed at every step of a way back, and of finishing one.

use std::io;

use super::super::restore::recover_with;
use super::*;
use pretty_assertions::assert_eq;

/// A session with every kind of change in it, ready to go back to its second prompt.
fn scene(house: &House) -> Desk {
    let work = house.work();
    fs::create_dir_all(work.join("folder/sub")).unwrap();
    for name in ["kept", "changed", "folder/one", "folder/sub/two", "becomes-folder"] {
        fs::write(work.join(name), format!("old {name}")).unwrap();
    }
    let desk = house.begin();
    desk.prompt("first");
    desk.answer("done");
    desk.prompt("second");
    house.write(&desk, "changed", "new");
    house.write(&desk, "made/deep/file", "new");
    house.shell(&desk, |work| {
        fs::remove_dir_all(work.join("folder")).unwrap();
        fs::write(work.join("folder"), "a file by now").unwrap();
        fs::remove_file(work.join("becomes-folder")).unwrap();
        fs::create_dir(work.join("becomes-folder")).unwrap();
        fs::write(work.join("becomes-folder/inside"), "x").unwrap();
        std::os::unix::fs::symlink("kept", work.join("link")).unwrap();
    });
    desk.answer("done");
    desk
}

fn killed() -> io::Error {
    io::Error::other("killed")
}

/// Does `rewind` with a process that is killed before its step `at`, from 0. Whether it was killed.
fn killed_at(desk: &Desk, what: RewindWhat, at: usize) -> bool {
    let mut step = 0;
    let request = RewindRequest { to: "2".into(), what, force: false };
    let done = desk.rewinder.rewind_with(&request, &mut || {
        step += 1;
        if step > at { Err(killed()) } else { Ok(()) }
    });
    match done {
        Ok(done) => {
            assert!(matches!(done.outcome, RewindOutcome::Done(_)), "{:?}", done.outcome);
            false
        }
        Err(error) => {
            assert_eq!(error.to_string(), "killed");
            true
        }
    }
}

/// What people see: the files, and what was said.
fn state(house: &House, desk: &Desk) -> (Tree, Vec<String>) {
    (tree(&house.work()), desk.prompts())
}

#[test]
fn killed_at_any_step_the_session_is_the_old_one_or_the_new_one_once_it_is_open_again() {
    for what in [RewindWhat::Conversation, RewindWhat::Files, RewindWhat::Both] {
        let (mut steps, mut old_ones, mut new_ones) = (0, 0, 0);
        loop {
            let house = House::new();
            let desk = scene(&house);
            let old = state(&house, &desk);
            let was_killed = killed_at(&desk, what, steps);
            drop(desk);
            let desk = house.open().unwrap();
            let now = state(&house, &desk);
            if !was_killed {
                assert_ne!(now, old);
                break;
            }
            steps += 1;
            if now == old {
                old_ones += 1;
                assert_eq!(new_ones, 0, "once it goes forward it never falls back");
                continue;
            }
            new_ones += 1;
            if what != RewindWhat::Conversation {
                assert_eq!(fs::read_to_string(house.work().join("changed")).unwrap(), "old changed");
                assert_eq!(fs::read_to_string(house.work().join("folder/sub/two")).unwrap(), "old folder/sub/two");
                assert!(house.work().join("becomes-folder").is_file());
                assert!(!house.work().join("made").exists() && !house.work().join("link").exists());
            }
            let words = if what == RewindWhat::Files { vec!["first", "second"] } else { vec!["first"] };
            assert_eq!(now.1, words);
            assert!(fs::read_dir(house.kept()).unwrap().flatten().all(|entry| entry.file_name() == "blobs"));
            // And it goes on: another way back finds nothing in its way.
            house.rewound(&desk, "1", RewindWhat::Files);
        }
        let expected = if what == RewindWhat::Conversation { (1, 1, 0) } else { (steps, 1, steps - 1) };
        assert_eq!((steps, old_ones, new_ones), expected, "{what:?}");
        assert!(what == RewindWhat::Conversation || steps > 10, "{steps}");
    }
}

#[test]
fn killed_while_it_finishes_what_was_killed_it_is_finished_all_the_same() {
    // What a whole way back comes to.
    let house = House::new();
    let desk = scene(&house);
    assert!(!killed_at(&desk, RewindWhat::Both, usize::MAX));
    let relative = |house: &House, tree: Tree| -> BTreeMap<PathBuf, Thing> {
        let work = house.work();
        tree.into_iter().map(|(path, thing)| (path.strip_prefix(&work).unwrap().to_owned(), thing)).collect()
    };
    let new = relative(&house, tree(&house.work()));
    let mut rounds = 0;
    for first in 1.. {
        let mut was_killed = true;
        for second in 0.. {
            let house = House::new();
            let desk = scene(&house);
            was_killed = killed_at(&desk, RewindWhat::Both, first);
            if !was_killed {
                break;
            }
            let conversation = desk.conversation();
            let recorder = desk.recorder.clone();
            let mut step = 0;
            let recovered = recover_with(
                &house.kept(),
                ID,
                &conversation,
                |to, line| recorder.rewound(to, Some(line)).map(drop),
                &mut || {
                    step += 1;
                    if step > second { Err(killed()) } else { Ok(()) }
                },
            );
            drop((desk, recorder));
            let desk = house.open().unwrap();
            assert_eq!(relative(&house, tree(&house.work())), new, "{first} {second}");
            assert_eq!(desk.prompts(), ["first"]);
            rounds += 1;
            if recovered.is_ok() {
                break;
            }
        }
        if !was_killed {
            break;
        }
    }
    assert!(rounds > 50, "{rounds}");
}

#[test]
fn what_somebody_wrote_between_the_death_and_the_next_opening_stays() {
    let house = House::new();
    let desk = scene(&house);
    assert!(killed_at(&desk, RewindWhat::Both, 4));
    drop(desk);
    fs::write(house.work().join("changed"), "by hand, meanwhile").unwrap();
    let desk = house.open().unwrap();
    assert_eq!(fs::read_to_string(house.work().join("changed")).unwrap(), "by hand, meanwhile");
    assert_eq!(fs::read_to_string(house.work().join("folder/one")).unwrap(), "old folder/one");
    assert_eq!(desk.prompts(), ["first"]);
}

#[test]
fn another_session_in_the_folder_finishes_it_too() {
    let house = House::new();
    let desk = scene(&house);
    let old = tree(&house.work());
    assert!(killed_at(&desk, RewindWhat::Both, 4));
    // Not while its session is open: whoever has it open is at it.
    house.records().finish_rewinds(&house.work());
    let half = tree(&house.work());
    drop(desk);
    house.records().finish_rewinds(&house.work());
    let now = tree(&house.work());
    assert!(now != old && now != half);
    assert_eq!(house.open().unwrap().prompts(), ["first"]);
}

#[test]
fn a_call_that_was_running_when_the_process_was_killed_is_taken_back_when_that_is_asked_for() {
    for anything in [true, false] {
        let house = House::new();
        fs::write(house.work().join("file"), "old").unwrap();
        let desk = house.begin();
        desk.prompt("first");
        let files = (!anything).then(|| vec![house.work().join("file"), house.work().join("made/new")]);
        let call = WritingCall { tool: "x".into(), what: "x".into(), files };
        house.runtime.block_on(desk.keeper.before(call));
        fs::write(house.work().join("file"), "new").unwrap();
        fs::create_dir(house.work().join("made")).unwrap();
        fs::write(house.work().join("made/new"), "new").unwrap();
        drop(desk);
        let desk = house.open().unwrap();
        // It can't be told who wrote what, so it is not done by the way.
        house.runtime.block_on(desk.rewinder.points()).unwrap();
        assert!(matches!(house.rewind(&desk, "1", RewindWhat::Files, false), RewindOutcome::Conflicts(_)));
        assert!(matches!(house.rewind(&desk, "1", RewindWhat::Files, true), RewindOutcome::Done(_)));
        assert_eq!(tree(&house.work()).len(), 1, "{anything}");
        assert_eq!(house.read("file").as_deref(), Some("old"));
    }
}
