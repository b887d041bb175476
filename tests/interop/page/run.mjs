/**
 * Runs the page's tests in a real browser.
 *
 *   node tests/interop/page/run.mjs [words of a test's name]
 *
 * Always against the scripted daemon. With CONVOKE_BASE_URL (and CONVOKE_TOKEN) the core tests run against that daemon
 * too; CONVOKE_PROMPT_COMMAND, CONVOKE_PROMPT_DIFF and CONVOKE_PROMPT_TEXT say what to ask its agent (see core.mjs). One
 * line per test, `N passed, N failed` at the end, exit code 1 if one failed. A window's console errors, exceptions,
 * requests to other hosts and policy violations fail its test.
 */

import { mkdir } from "node:fs/promises";
import { launch, openWindow } from "./browser.mjs";
import { coreTests } from "./core.mjs";
import { hardTests } from "./hard.mjs";
import { startMockDaemon } from "./mock-daemon.mjs";

const filter = process.argv.slice(2).join(" ");
const shots = process.env.CONVOKE_SHOTS;
const browser = await launch();
let passed = 0;
let failed = 0;
let skipped = 0;

/**
 * @param {string} name
 * @param {(tools: { browser: typeof browser, open: typeof openWindow }) => Promise<void>} run
 */
async function attempt(name, run) {
  if (!name.includes(filter)) return;
  /** @type {Awaited<ReturnType<typeof openWindow>>[]} */
  const windows = [];
  const open = async (...args) => {
    const window = await openWindow(...args);
    windows.push(window);
    return window;
  };
  const started = performance.now();
  try {
    await run({ browser, open });
    const faults = windows.flatMap((window) => window.faults);
    if (faults.length > 0) throw new Error(`the page misbehaved:\n    ${faults.join("\n    ")}`);
    passed += 1;
    console.log(`ok   ${name} (${Math.round(performance.now() - started)} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}\n    ${String(error.message).split("\n").slice(0, 12).join("\n    ")}`);
    if (shots) {
      await mkdir(shots, { recursive: true });
      for (const [index, { page }] of windows.entries()) {
        await page.screenshot({ path: `${shots}/${name.replace(/\W+/g, "-").slice(0, 60)}-${index}.png` }).catch(() => {});
      }
    }
  } finally {
    await Promise.all(windows.map((window) => window.context.close()));
  }
}

const base = process.env.CONVOKE_BASE_URL;
if (base) {
  const target = {
    base: base.replace(/\/$/, ""),
    token: process.env.CONVOKE_TOKEN ?? "",
    prompts: {
      command: process.env.CONVOKE_PROMPT_COMMAND ?? "command",
      diff: process.env.CONVOKE_PROMPT_DIFF ?? null,
      text: process.env.CONVOKE_PROMPT_TEXT ?? "hello",
    },
  };
  for (const { name, needs, run } of coreTests) {
    if (needs && !target.prompts[needs]) {
      skipped += 1;
      console.log(`skip daemon: ${name} (CONVOKE_PROMPT_${needs.toUpperCase()} is not set)`);
    } else {
      await attempt(`daemon: ${name}`, (tools) => run({ ...tools, target }));
    }
  }
}

for (const { name, run } of coreTests) {
  await attempt(`mock: ${name}`, async (tools) => {
    const daemon = await startMockDaemon();
    try {
      await run({ ...tools, target: { base: daemon.url, token: daemon.token, prompts: { command: "command", diff: "diff", text: "hello" } } });
    } finally {
      await daemon.close();
    }
  });
}
for (const { name, policy, run } of hardTests) {
  await attempt(`mock: ${name}`, async (tools) => {
    const daemon = await startMockDaemon(policy ? { policy } : {});
    try {
      await run({ ...tools, daemon });
    } finally {
      await daemon.close();
    }
  });
}

await browser.close();
console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
process.exitCode = failed > 0 ? 1 : 0;
