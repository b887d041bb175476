/** What do the page's tests say when they are wrong? Small waiting assertions over playwright's locators. */

import assert from "node:assert/strict";

/** @param {import("playwright-core").Locator} locator @param {string | RegExp} text */
export async function hasText(locator, text) {
  const wanted = typeof text === "string" ? (found) => found.includes(text) : (found) => text.test(found);
  await eventually(async () => {
    const found = await locator.allInnerTexts();
    assert.ok(found.some(wanted), `expected ${text} in ${JSON.stringify(found)}`);
  });
}

/** @param {import("playwright-core").Locator} locator @param {number} count */
export async function hasCount(locator, count) {
  await eventually(async () => assert.equal(await locator.count(), count, `${locator}`));
}

/** Polls until the check passes; the deadline only bounds a failing test. @param {() => unknown} check */
export async function eventually(check, deadlineMs = 12_000) {
  const end = Date.now() + deadlineMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
  }
}
