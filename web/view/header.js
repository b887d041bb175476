/** What must always be in sight? Where we are, whether we are connected, and the few controls of the whole page. */

import { connectionText } from "../wording.js";
import { h, setText } from "./dom.js";
import { icon } from "./icons.js";

/** @typedef {import("../types").Connection} Connection */

const THEMES = /** @type {const} */ (["auto", "light", "dark"]);

/**
 * @param {HTMLElement} root
 * @param {object} on
 * @param {() => void} on.menu
 * @param {() => string | null} on.link
 * @param {() => void} on.reconnect
 */
export function createHeader(root, on) {
  const title = h("h1", { class: "title" }, "Convoke");
  const place = h("p", { class: "place" });
  const dot = h("span", { class: "dot" });
  const words = h("span", { class: "connection-text" });
  const connection = h(
    "button",
    { type: "button", class: "connection", title: "Connection to the daemon", onclick: () => on.reconnect() },
    dot,
    words,
  );
  const linkLabel = h("span", { class: "wide" }, "Copy link");
  const link = h(
    "button",
    { type: "button", class: "tool-button", title: "Copy a link that opens this session in another window; it contains the token", onclick: copy },
    icon("link"),
    linkLabel,
  );
  const theme = h("button", { type: "button", class: "tool-button theme", onclick: nextTheme });
  const menu = h(
    "button",
    { type: "button", class: "tool-button menu", "aria-label": "Sessions", "aria-expanded": "false", "aria-controls": "sidebar", onclick: () => on.menu() },
    icon("menu"),
    h("span", { class: "badge", hidden: true }),
  );
  root.replaceChildren(menu, h("div", { class: "where" }, title, place), connection, link, theme);
  showTheme();

  async function copy() {
    const address = on.link();
    if (!address) return;
    try {
      await navigator.clipboard.writeText(address);
      setText(linkLabel, "Copied");
    } catch {
      // Without the clipboard (plain HTTP from another machine) the person copies it by hand.
      window.prompt("Copy this link; it contains the token", address);
    }
    setTimeout(() => setText(linkLabel, "Copy link"), 1600);
  }

  function currentTheme() {
    const value = document.documentElement.dataset.theme;
    return value === "light" || value === "dark" ? value : "auto";
  }

  function nextTheme() {
    const next = THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length] ?? "auto";
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("convoke.theme", next);
    } catch {
      // Then it holds for this page only.
    }
    showTheme();
  }

  function showTheme() {
    const now = currentTheme();
    const label = { auto: "Colours follow the system", light: "Light colours", dark: "Dark colours" }[now];
    theme.replaceChildren(icon({ auto: "auto", light: "sun", dark: "moon" }[now]));
    theme.setAttribute("aria-label", label);
    theme.title = label;
  }

  return {
    /**
     * @param {object} now
     * @param {string} now.title
     * @param {string} now.place
     * @param {Connection} now.connection
     * @param {number} now.time
     */
    render(now) {
      setText(title, now.title);
      setText(place, now.place);
      root.dataset.connection = now.connection.state;
      const text = connectionText(now.connection, now.time);
      setText(words, text);
      connection.setAttribute("aria-label", `Connection: ${text}`);
      connection.disabled = now.connection.state !== "waiting";
    },
    /** @param {boolean} open */
    setMenu: (open) => menu.setAttribute("aria-expanded", String(open)),
    focusMenu: () => menu.focus(),
  };
}
