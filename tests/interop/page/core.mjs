/**
 * What the page must do with any daemon.
 *
 * Each test makes a session of its own. The prompts are settings, because what an agent does depends on the agent:
 * `command` must lead to one permission request for a shell command, `diff` to one for an edit, `text` to text only.
 */

import assert from "node:assert/strict";
import { openWindow } from "./browser.mjs";
import { eventually, hasCount, hasText } from "./expect.mjs";

/**
 * @typedef {object} Target
 * @property {string} base
 * @property {string} token
 * @property {{ command: string, diff: string | null, text: string }} prompts
 */

/** @param {Target} target */
async function freshSession({ base, token }) {
  const response = await fetch(`${base}/session`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
    body: JSON.stringify({ sessionScope: "thread" }),
  });
  assert.equal(response.status, 200, await response.clone().text());
  const { sessionId } = await response.json();
  return `${base}/session/${sessionId}#token=${encodeURIComponent(token)}`;
}

/** @param {import("playwright-core").Page} page @param {string} text */
export async function send(page, text) {
  await eventually(async () => assert.equal(await page.locator("#header").getAttribute("data-connection"), "live"));
  await page.locator("#prompt").fill(text);
  await page.locator("#prompt").press("Enter");
}

export const card = (page) => page.locator(".ask[data-tone=pending]");
export const verdictLine = (page) => page.locator(".conversation .verdict");

/** @type {{ name: string, needs?: "diff", run: (context: { browser: import("playwright-core").Browser, target: Target, open: typeof openWindow }) => Promise<void> }[]} */
export const coreTests = [
  {
    name: "a prompt is streamed, a command is asked for in full, allowed, and the turn ends",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.command);
      await hasText(page.locator(".entry.user"), target.prompts.command);
      await card(page).waitFor();
      await hasText(card(page).locator(".command-text"), /\S/);
      await hasText(card(page).locator(".ask-by"), "working for this window");
      assert.ok((await card(page).locator(".choice").count()) >= 2);
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by this window");
      await hasCount(page.locator(".tool[data-state=done]"), 1);
      await hasText(page.locator(".entry.agent"), /\S/);
      await page.locator(".stop").waitFor({ state: "hidden" });
      assert.equal(new URL(page.url()).hash, "", "the token leaves the address bar");
    },
  },
  {
    name: "two windows see the same request; the first answer wins and the other window says whose",
    async run({ target, open, browser }) {
      const url = await freshSession(target);
      const one = await open(browser, url);
      await send(one.page, target.prompts.command);
      await card(one.page).waitFor();
      // The second window comes late and races: its vote is held back until the first one has won.
      const two = await open(browser, url, { expectFailures: true });
      await card(two.page).waitFor();
      assert.equal(await card(two.page).getAttribute("data-request"), await card(one.page).getAttribute("data-request"));
      assert.equal(await card(two.page).locator(".command-text").innerText(), await card(one.page).locator(".command-text").innerText());
      /** @type {(value?: unknown) => void} */
      let release = () => {};
      const first = new Promise((resolve) => (release = resolve));
      await two.page.route("**/permission/*", async (route) => {
        await first;
        await route.continue();
      });
      await card(two.page).locator(".choice.reject").first().click();
      await card(one.page).locator(".choice.primary").click();
      await hasText(verdictLine(one.page), "Allowed by this window");
      const answered = two.page.waitForResponse("**/permission/*");
      release();
      assert.equal((await answered).status(), 404);
      await hasText(verdictLine(two.page), /^Allowed by window \w{4}/);
      await hasText(two.page.locator(".ask-status"), /^Window \w{4} answered first/);
    },
  },
  {
    name: "no means no",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.command);
      await card(page).locator(".choice.reject").first().click();
      await hasText(verdictLine(page), "Denied by this window");
      await card(page).waitFor({ state: "detached" });
      await page.locator(".stop").waitFor({ state: "hidden" });
    },
  },
  {
    name: "an edit is asked for as a diff with line numbers",
    needs: "diff",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.diff ?? "");
      await card(page).waitFor();
      const diff = card(page).locator(".diff");
      assert.ok((await diff.locator("tr.add").count()) > 0, "added lines");
      assert.match(await diff.locator("tr.add .no").nth(1).innerText(), /^\d+$/);
      assert.ok((await diff.locator(".diff-path").innerText()).length > 0);
      // The diff is as tall as its rows: the card scrolls, nothing is cut away.
      await page.setViewportSize({ width: 1200, height: 620 });
      const [inner, outer] = await diff.evaluate((node) => [node.querySelector(".diff-head").offsetHeight + node.querySelector("table").offsetHeight, node.clientHeight]);
      assert.ok(outer >= inner - 1, `diff cut: ${inner} > ${outer}`);
      await card(page).locator(".choice.primary").click();
      await hasText(verdictLine(page), "Allowed by this window");
      await page.locator(".stop").waitFor({ state: "hidden" });
    },
  },
  {
    name: "keyboard only: type, send, answer with a number",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await eventually(async () => assert.equal(await page.locator("#header").getAttribute("data-connection"), "live"));
      await page.locator("#prompt:focus").waitFor();
      await page.keyboard.type(target.prompts.command);
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("second line");
      await page.keyboard.press("Enter");
      await hasText(page.locator(".entry.user"), "second line");
      // The focus comes to the card by itself once nobody is typing.
      await page.locator(".ask:focus").waitFor();
      await page.locator(".ask .choice.primary:enabled").waitFor();
      await page.keyboard.press("Tab");
      assert.ok(await page.evaluate(() => document.activeElement?.closest(".ask") !== null), "Tab stays within reach of the card");
      const nth = 1 + (await card(page).locator(".choice").evaluateAll((nodes) => nodes.findIndex((node) => node.classList.contains("primary"))));
      await page.keyboard.press(`Digit${nth}`);
      await hasText(verdictLine(page), "Allowed by this window");
      await page.locator("#prompt:focus").waitFor();
    },
  },
  {
    name: "digits typed into the message box answer nothing; with Alt they do",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.command);
      await page.locator("#prompt").pressSequentially("1");
      await page.locator(".ask .choice.primary:enabled").waitFor();
      await page.locator("#prompt").pressSequentially("23");
      assert.equal(await page.locator("#prompt").inputValue(), "123");
      assert.equal(await card(page).count(), 1);
      const nth = 1 + (await card(page).locator(".choice").evaluateAll((nodes) => nodes.findIndex((node) => node.classList.contains("primary"))));
      await page.keyboard.press(`Alt+Digit${nth}`);
      await hasText(verdictLine(page), "Allowed by this window");
      assert.equal(await page.locator("#prompt").inputValue(), "123");
    },
  },
  {
    name: "Escape cancels the turn and withdraws the question",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.command);
      await card(page).waitFor();
      await page.keyboard.press("Escape");
      await hasText(verdictLine(page), "Withdrawn: the turn was cancelled");
      await hasText(page.locator(".entry.note"), "Turn cancelled by this window");
      await page.locator(".stop").waitFor({ state: "hidden" });
    },
  },
  {
    name: "the bare address joins the shared session, in every window",
    async run({ target, open, browser }) {
      const url = `${target.base}/#token=${encodeURIComponent(target.token)}`;
      const one = await open(browser, url);
      const two = await open(browser, url);
      await eventually(() => assert.match(new URL(one.page.url()).pathname, /^\/session\/.+/));
      await eventually(() => assert.equal(new URL(two.page.url()).pathname, new URL(one.page.url()).pathname));
      await send(one.page, target.prompts.text);
      await hasText(two.page.locator(".entry.user"), target.prompts.text);
      await hasText(two.page.locator(".entry.user .who"), /^Window \w{4}/i);
      await hasText(two.page.locator(".entry.agent"), /\S/);
    },
  },
  {
    name: "reload: the history comes back and this window keeps its name",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target));
      await send(page, target.prompts.command);
      await card(page).locator(".choice.primary").click();
      await page.locator(".stop").waitFor({ state: "hidden" });
      await page.reload();
      await hasText(page.locator(".entry.user .who"), /^This window/i);
      await hasText(verdictLine(page), "Allowed by this window");
    },
  },
  {
    name: "new session and session list; closing is seen by the other window",
    async run({ target, open, browser }) {
      const url = await freshSession(target);
      const one = await open(browser, url);
      const other = await open(browser, url, { expectFailures: true });
      const id = new URL(one.page.url()).pathname.split("/").pop();
      await eventually(async () => assert.equal(await one.page.locator(`.session[data-session="${id}"]`).count(), 1));
      await one.page.getByRole("button", { name: "New session" }).click();
      await eventually(() => assert.ok(!one.page.url().includes(id)));
      await eventually(async () => assert.ok((await one.page.locator(".session").count()) >= 2));
      await one.page.locator(`.session[data-session="${id}"] .session-open`).click();
      await eventually(() => assert.ok(one.page.url().includes(id)));
      await eventually(async () => assert.equal(await one.page.locator("#header").getAttribute("data-connection"), "live"));
      const close = one.page.locator(`.session[data-session="${id}"] .session-close`);
      await close.click();
      await hasText(close, "Close?");
      await close.click();
      await hasText(other.page.locator(".entry.note"), /^Session closed by window \w{4}/);
      await hasText(other.page.locator(".gate"), "This session was closed");
    },
  },
  {
    name: "a phone's width: nothing overflows, the list is a drawer, targets are large",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target), { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 });
      const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await send(page, target.prompts.command);
      await card(page).waitFor();
      assert.equal(await overflow(), 0);
      const wide = await page.evaluate(() => [...document.querySelectorAll(".ask, .ask *, .entry, .composer-box, .header > *")].filter((node) => node.getClientRects().length > 0 && !node.closest("pre, .diff-body, .visually-hidden") && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.className));
      assert.deepEqual(wide, []);
      for (const box of await card(page).locator(".choice").evaluateAll((nodes) => nodes.map((node) => node.getBoundingClientRect().toJSON()))) {
        assert.ok(box.height >= 44, `a target of ${box.height} px`);
        assert.ok(box.bottom <= 740, "the answers are on the screen");
      }
      await card(page).locator(".choice.primary").tap();
      await hasText(verdictLine(page), "Allowed by this window");
      await page.getByRole("button", { name: "Sessions" }).tap();
      await page.locator(".session-open").first().waitFor({ state: "visible" });
      assert.equal(await overflow(), 0);
      await page.keyboard.press("Escape");
      await page.locator(".session-open").first().waitFor({ state: "hidden" });
    },
  },
  {
    name: "light and dark follow the system, and the toggle wins and lasts",
    async run({ target, open, browser }) {
      const { page } = await open(browser, await freshSession(target), { colorScheme: "dark" });
      const brightness = () =>
        page.evaluate(() => {
          const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
          return (r + g + b) / 3;
        });
      assert.ok((await brightness()) < 60, "dark");
      await page.emulateMedia({ colorScheme: "light" });
      assert.ok((await brightness()) > 200, "light");
      await page.locator(".theme").click();
      await page.locator(".theme").click();
      assert.ok((await brightness()) < 60, "dark by choice");
      await page.reload();
      assert.ok((await brightness()) < 60, "still dark");
    },
  },
  {
    name: "a wrong token is told, and a right one can be given",
    async run({ target, open, browser }) {
      if (!target.token) return;
      const { page } = await open(browser, `${target.base}/#token=wrong`, { expectFailures: true });
      await hasText(page.locator(".gate"), "refused this token");
      await page.locator("#token").fill(target.token);
      await page.locator("#token").press("Enter");
      await eventually(async () => assert.equal(await page.locator("#header").getAttribute("data-connection"), "live"));
    },
  },
];
