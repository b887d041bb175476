/** What the page must do when things go wrong in ways that only the scripted daemon can be told to. */

import assert from "node:assert/strict";
import { card, send, verdictLine } from "./core.mjs";
import { eventually, hasCount, hasText } from "./expect.mjs";

const live = (page) => eventually(async () => assert.equal(await page.locator("#header").getAttribute("data-connection"), "live"));

/** A thread session of the mock and its address. */
function make(daemon) {
  return fetch(`${daemon.url}/session`, { method: "POST", headers: { Authorization: `Bearer ${daemon.token}`, "Content-Type": "application/json" }, body: '{"sessionScope":"thread"}' })
    .then((response) => response.json())
    .then(({ sessionId }) => ({ session: daemon.session(sessionId), url: `${daemon.url}/session/${sessionId}#token=${daemon.token}` }));
}

const requestsTo = (daemon, session) => daemon.requests.filter((request) => request.path === `/session/${session.id}/events`);

/** @type {{ name: string, policy?: string, run: (context: any) => Promise<void> }[]} */
export const hardTests = [
  {
    name: "a dropped stream comes back by itself, says so, and misses and doubles nothing",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await send(page, "slow");
      await hasText(page.locator(".entry.agent"), "Working until I am stopped.");
      daemon.refuseStreams.push({ status: 503 }, { status: 429, headers: { "Retry-After": "1" } });
      session.dropStreams();
      await hasText(page.locator(".connection"), /Reconnecting|Connecting/);
      session.say("Said while nobody listened.", session.running);
      await live(page);
      await hasText(page.locator(".entry.agent"), "Said while nobody listened.");
      const opened = requestsTo(daemon, session);
      assert.ok(opened.length >= 4, `${opened.length} streams`);
      assert.equal(opened[0].headers["last-event-id"], "0");
      assert.equal(opened.at(-1).headers["last-event-id"], "2");
      assert.equal(opened.at(-1).headers["x-qwen-event-epoch"], session.epoch);
      await page.getByRole("button", { name: "Stop" }).click();
      await hasText(page.locator(".entry.note"), "Turn cancelled by this window");
      await hasCount(page.locator(".entry.agent"), 1);
      assert.equal((await page.locator(".entry.agent").innerText()).match(/Working/g).length, 1);
    },
  },
  {
    name: "a question asked while the stream was down is there after it",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await live(page);
      daemon.refuseStreams.push({ status: 503 });
      session.dropStreams();
      session.prompt("command", undefined);
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by this window");
    },
  },
  {
    name: "an evicted window says so and catches up",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await send(page, "hello");
      await hasText(page.locator(".entry.agent"), "You said: hello");
      session.evict();
      await hasText(page.locator(".entry.note"), "fell behind");
      await live(page);
      await send(page, "again");
      await hasText(page.locator(".entry.agent"), "You said: again");
      await hasCount(page.locator(".entry.agent"), 2);
    },
  },
  {
    name: "another epoch: everything is rebuilt from a fresh replay",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await send(page, "one");
      await hasText(page.locator(".entry.agent"), "You said: one");
      session.forget(2);
      session.newEpoch();
      await hasCount(page.locator(".entry.user"), 0);
      await live(page);
      await hasText(page.locator(".entry.agent"), "You said: one");
      assert.equal(requestsTo(daemon, session).at(-1).headers["last-event-id"], "0");
    },
  },
  {
    name: "a ring that lost its beginning: what is left is shown, the loss is told, the pending question is found",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      session.prompt("long", undefined);
      await eventually(() => assert.equal(session.running, null));
      session.prompt("command", undefined);
      await eventually(() => assert.equal(session.pending.size, 1));
      session.forget(0);
      const late = await open(browser, url);
      await hasText(late.page.locator(".lead"), "no longer in the daemon's memory");
      await card(late.page).waitFor();
      // Without the repeated frame, as with daemons that don't send it: from the status.
      daemon.missing.add("late-joiner");
      const { page } = await open(browser, url);
      await hasText(card(page).locator(".command-text"), "cargo test -p bridge");
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by this window");
      await hasText(verdictLine(late.page), /Allowed by window \w{4}/);
    },
  },
  {
    name: "votes by quorum: progress is shown in both windows, the second vote decides",
    policy: "consensus",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const one = await open(browser, url);
      const two = await open(browser, url);
      await live(two.page);
      await send(one.page, "command");
      await card(two.page).waitFor();
      await card(one.page).locator(".choice.primary").click();
      for (const { page } of [one, two]) {
        await hasText(card(page).locator(".ask-tally"), "1 vote so far, 1 more needed (quorum 2)");
        await hasText(card(page).locator(".ask-tally .chip"), "Allow once: 1");
      }
      await hasText(card(one.page).locator(".ask-status"), "Your vote is counted: Allow once");
      await card(two.page).locator(".choice.primary").click();
      await hasText(verdictLine(one.page), /Allowed by window \w{4}/);
      await hasText(verdictLine(two.page), "Allowed by this window");
    },
  },
  {
    name: "a window that may not answer is told why, and the others see the attempt",
    policy: "designated",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const one = await open(browser, url);
      const two = await open(browser, url, { expectFailures: true });
      await live(two.page);
      await send(one.page, "command");
      await hasText(card(two.page).locator(".ask-by"), /only window \w{4} can answer/);
      await card(two.page).locator(".choice.primary").click();
      await hasText(card(two.page).locator(".ask-problem"), "reserved for other clients");
      await hasText(card(one.page).locator(".ask-refused"), /Window \w{4} was refused/);
      await card(one.page).locator(".choice.primary").click();
      await hasText(verdictLine(two.page), /Allowed by window \w{4}/);
    },
  },
  {
    name: "several questions at once are asked one by one",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "two");
      await hasText(card(page).locator(".ask-of"), "1 of 2");
      await hasText(card(page).locator(".command-text"), "echo first");
      await card(page).getByRole("button", { name: "Next request" }).click();
      await hasText(card(page).locator(".command-text"), "echo second");
      await card(page).locator(".choice.reject").click();
      await hasText(card(page).locator(".command-text"), "echo first");
      // A card that slides in takes nothing for a moment.
      await card(page).locator(".choice.primary").click();
      await hasText(page.locator(".entry.agent"), "Both answered.");
      assert.deepEqual(await verdictLine(page).locator(".verdict-text").allInnerTexts(), ["Allowed by this window", "Denied by this window"]);
    },
  },
  {
    name: "a deadline is counted down; hidden characters are spelled out",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "deadline");
      await hasText(card(page).locator(".ask-clock"), /1 min \d+ s left/);
      await card(page).locator(".choice.reject").click();
      await card(page).waitFor({ state: "detached" });
      await send(page, "hidden");
      await hasText(card(page).locator(".command-text .hidden-char"), "U+202E");
    },
  },
  {
    name: "hostile output stays text: no script, no request, no style, no CSP violation",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "xss");
      await card(page).waitFor();
      await hasText(card(page).locator(".command-text"), "<img src=x onerror=");
      await card(page).locator(".arguments summary").click();
      await card(page).locator(".choice.primary").click();
      await hasText(page.locator(".entry.note.error"), "<script>");
      assert.equal(await page.evaluate(() => window.__xss), undefined);
      const bad = await page.evaluate(() => ({
        elements: [...document.querySelectorAll("#conversation :is(script, img, iframe, object, style, form), #dock :is(script, img, iframe)")].length,
        handlers: [...document.querySelectorAll("*")].filter((node) => node.getAttributeNames().some((name) => name.startsWith("on"))).length,
        styles: document.querySelectorAll("#conversation [style], #dock [style]").length,
        links: [...document.querySelectorAll("#conversation a")].map((node) => node.getAttribute("href")).filter((href) => href && !/^https?:/.test(href)),
      }));
      assert.deepEqual(bad, { elements: 0, handlers: 0, styles: 0, links: [] });
      await page.locator(".skip").waitFor({ state: "attached" });
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).display), "none");
    },
  },
  {
    name: "Markdown is drawn as it streams, and settled blocks are not drawn again",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page } = await open(browser, url);
      await live(page);
      await page.evaluate(() => {
        window.__heads = new Set();
        new MutationObserver(() => {
          const head = document.querySelector(".markdown > h2");
          const next = head?.nextElementSibling;
          // From the moment that a block follows, the first one is settled.
          if (head && next) window.__heads.add(head);
        }).observe(document.querySelector("#conversation"), { childList: true, subtree: true });
      });
      await send(page, "markdown");
      await hasText(page.locator(".markdown"), "Done.");
      await page.locator(".stop").waitFor({ state: "hidden" });
      const seen = await page.evaluate(() => window.__heads.size);
      assert.ok(seen <= 2, `the first heading was drawn ${seen} times`);
      assert.equal(await page.locator(".markdown table td").count(), 4);
      assert.equal(await page.locator(".markdown ol > li").count(), 2);
      await page.locator(".markdown .hljs-keyword").first().waitFor();
      assert.equal(await page.locator(".markdown a").getAttribute("rel"), "noopener noreferrer");
      await hasText(page.locator(".markdown li"), "☑ read");
    },
  },
  {
    name: "a long history stays at its end, and a reader who scrolled up is left in peace",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "long");
      await hasText(page.locator(".entry.agent"), "Paragraph 399");
      const gap = () => page.locator("#scroller").evaluate((node) => node.scrollHeight - node.scrollTop - node.clientHeight);
      await eventually(async () => assert.ok((await gap()) < 60));
      await page.locator("#scroller").evaluate((node) => node.scrollTo(0, 0));
      await page.getByRole("button", { name: "Latest" }).waitFor();
      session.prompt("hello", undefined);
      await hasText(page.locator(".entry.agent"), "You said: hello");
      assert.equal(await page.locator("#scroller").evaluate((node) => node.scrollTop), 0);
      await page.getByRole("button", { name: "Latest" }).click();
      await eventually(async () => assert.ok((await gap()) < 60));
    },
  },
  {
    name: "prompts queue behind a running turn; a failed turn says why",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "slow");
      await page.locator(".stop").waitFor();
      await send(page, "fail please");
      await hasText(page.locator(".queue"), "fail please");
      await page.keyboard.press("Escape");
      await hasText(page.locator(".entry.note.error"), "The turn failed: the model refused");
      await page.locator(".queue").waitFor({ state: "hidden" });
    },
  },
  {
    name: "daemons without a session list or without resume are enough",
    async run({ daemon, open, browser }) {
      daemon.missing.add("list").add("resume").add("load");
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await send(page, "command");
      await hasText(page.locator(".session-empty"), "does not list");
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by a client without a name");
      assert.equal(session.clients.size, 1, "only the one that made it");
    },
  },
  {
    name: "a window that the daemon forgot registers again and its answer still counts",
    async run({ daemon, open, browser }) {
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url, { expectFailures: true });
      await send(page, "command");
      await card(page).waitFor();
      session.clients.clear();
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by this window");
    },
  },
  {
    name: "a second window of the same browser needs no token; the link to copy has it",
    async run({ daemon, open, browser }) {
      const { url } = await make(daemon);
      const { page, context } = await open(browser, url);
      await live(page);
      await context.grantPermissions(["clipboard-read", "clipboard-write"]);
      await page.locator("#header").getByRole("button", { name: "Copy link" }).click();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), url);
      const second = await context.newPage();
      await second.goto(url.split("#")[0]);
      await live(second);
      for (const request of daemon.requests) assert.ok(!`${request.path}${request.search}${request.headers.referer ?? ""}`.includes(daemon.token));
    },
  },
  {
    name: "a session that is gone, and an agent that died, are told with a way on",
    async run({ daemon, open, browser }) {
      const gone = await open(browser, `${daemon.url}/session/no-such#token=${daemon.token}`, { expectFailures: true });
      await hasText(gone.page.locator(".gate"), "This session is gone");
      await gone.page.getByRole("button", { name: "Go to the shared session" }).click();
      await live(gone.page);
      const { session, url } = await make(daemon);
      const { page } = await open(browser, url);
      await send(page, "command");
      await card(page).waitFor();
      session.publish("session_died", { sessionId: session.id, reason: "channel_closed", exitCode: null, signalCode: "SIGKILL" });
      await hasText(page.locator(".entry.note.error"), "The agent stopped (SIGKILL)");
      await hasText(verdictLine(page), "Withdrawn: the session ended");
      await page.getByRole("button", { name: "Open a new session" }).click();
      await live(page);
    },
  },
];
