/**
 * A browser for the page's tests: Debian's Chromium, driven by playwright-core.
 *
 * Each window is a browser context of its own, as two people have it. What the page must never do is recorded for every
 * window: console errors, exceptions, requests to other hosts, violations of the content security policy.
 */

import { chromium } from "playwright-core";

export async function launch() {
  return chromium.launch({
    executablePath: process.env.CONVOKE_CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/**
 * @param {import("playwright-core").Browser} browser
 * @param {string} url
 * @param {import("playwright-core").BrowserContextOptions & { expectFailures?: boolean }} [options]
 */
export async function openWindow(browser, url, options = {}) {
  const { expectFailures = false, ...contextOptions } = options;
  const context = await browser.newContext({ viewport: { width: 1200, height: 820 }, reducedMotion: "reduce", ...contextOptions });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  const own = new URL(url).origin;
  page.on("console", (message) => {
    if (message.type() !== "error" && message.type() !== "warning") return;
    // Chromium logs each failed request itself; tests that make requests fail say so.
    if (expectFailures && message.text().startsWith("Failed to load resource")) return;
    faults.push(`console ${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(own) && !request.url().startsWith("data:")) faults.push(`request to another host: ${request.url()}`);
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(url);
  return { page, context, faults };
}
