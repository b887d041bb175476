/**
 * Which words of a code block deserve a colour?
 *
 * highlight.js, fetched from this origin when the first block needs it, one language at a time.
 */

import { sanitisedSpans } from "./markdown.js";

/** Beyond this a block stays plain: colouring would hold up the page longer than a frame or two. */
const CODE_CHARS_MAX = 40_000;

/** Our file for each name that authors write after the fence. @type {Record<string, string>} */
const LANGUAGES = {
  ...Object.fromEntries(
    "bash c cpp css diff dockerfile go ini java javascript json makefile markdown python ruby rust sql typescript xml yaml"
      .split(" ")
      .map((name) => [name, name]),
  ),
  sh: "bash", shell: "bash", console: "bash", zsh: "bash", h: "c", "c++": "cpp", cc: "cpp", hpp: "cpp", patch: "diff",
  toml: "ini", js: "javascript", mjs: "javascript", jsx: "javascript", ts: "typescript", tsx: "typescript", make: "makefile",
  md: "markdown", py: "python", rb: "ruby", rs: "rust", html: "xml", svg: "xml", yml: "yaml", golang: "go",
};

/** @typedef {typeof import("./vendor/highlight/core.min.js").default} Highlighter */

/** @type {Map<string, Promise<Highlighter | null>>} */
const ready = new Map();

/** @param {string} file */
function load(file) {
  let promise = ready.get(file);
  if (!promise) {
    promise = Promise.all([
      import("./vendor/highlight/core.min.js"),
      import(`./vendor/highlight/languages/${file}.min.js`),
    ]).then(
      ([core, language]) => {
        core.default.registerLanguage(file, language.default);
        return core.default;
      },
      () => null,
    );
    ready.set(file, promise);
  }
  return promise;
}

/** Colours a `code` element in place. Does nothing for languages we don't carry. @param {Element} code */
export async function highlight(code) {
  const name = /language-([\w+#.-]+)/.exec(code.className)?.[1]?.toLowerCase() ?? "";
  const file = LANGUAGES[name];
  const source = code.textContent ?? "";
  if (!file || source.length > CODE_CHARS_MAX) return;
  const highlighter = await load(file);
  if (!highlighter || !code.isConnected) return;
  code.replaceChildren(sanitisedSpans(highlighter.highlight(source, { language: file }).value));
}
