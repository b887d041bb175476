/**
 * How does an agent's Markdown become nodes?
 *
 * marked parses, DOMPurify sanitises what it wrote, and nothing else reaches the document. HTML in the source is shown
 * as the text it is; pictures from elsewhere become links, because the page loads nothing from other hosts.
 */

import DOMPurify from "./vendor/dompurify/purify.es.js";
import { Marked } from "./vendor/marked/marked.esm.js";

/** @param {string} text */
const escape = (text) =>
  text.replace(/[&<>"']/g, (/** @type {string} */ char) => `&#${char.charCodeAt(0)};`);

/** @param {string} href */
const isWeb = (href) => /^(?:https?:|mailto:)/i.test(href);

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ href, text }) =>
      isWeb(href) ? `<a href="${escape(href)}">${escape(text || href)}</a>` : escape(text || href),
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    code({ text, lang }) {
      const name = /^[\w+#.-]{1,24}/.exec(lang ?? "")?.[0] ?? "";
      return `<pre><code class="${name ? `language-${escape(name)}` : ""}">${escape(text)}\n</code></pre>`;
    },
  },
});

const purifier = DOMPurify(window);
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

const MARKDOWN = {
  ALLOWED_TAGS: [
    ..."a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre strong table tbody td th thead tr ul".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: /** @type {const} */ (true),
};

/** @param {string} html @returns {DocumentFragment} */
function sanitised(html) {
  return purifier.sanitize(html, MARKDOWN);
}

/** Spans with a class, as the highlighter writes them. @param {string} html @returns {DocumentFragment} */
export function sanitisedSpans(html) {
  return purifier.sanitize(html, {
    ALLOWED_TAGS: ["span"],
    ALLOWED_ATTR: ["class"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

/**
 * A document that grows at its end.
 *
 * Blocks that later text can't change any more are rendered once and left alone; only the last block is rendered again.
 * A message of n characters so costs O(n) over its whole life, not O(n²).
 *
 * @param {HTMLElement} container Belongs to the document from now on.
 * @param {(root: ParentNode) => void} [decorate] Called with newly made settled blocks.
 */
export function growingMarkdown(container, decorate) {
  let source = "";
  let settled = 0;
  /** @type {ChildNode[]} */
  let tail = [];

  function put(/** @type {import("./vendor/marked/marked.esm.js").Token[]} */ tokens) {
    const fragment = sanitised(marked.parser(tokens));
    const nodes = [...fragment.childNodes];
    container.append(fragment);
    return nodes;
  }

  function clearTail() {
    for (const node of tail) node.remove();
    tail = [];
  }

  return {
    /**
     * @param {string} text The whole text so far.
     * @param {boolean} open Whether more may come.
     */
    update(text, open) {
      const normal = text.replace(/\r\n?/g, "\n");
      const references = !open && /^ {0,3}\[[^\]]+\]:/m.test(normal);
      if (!normal.startsWith(source.slice(0, settled)) || references) {
        // Rewritten, or complete and with link definitions that earlier blocks may use: from the beginning.
        container.replaceChildren();
        tail = [];
        settled = 0;
      }
      source = normal;
      clearTail();
      const tokens = marked.lexer(normal.slice(settled));
      const keep = open ? lastBlock(tokens) : tokens.length;
      const done = tokens.slice(0, keep);
      if (done.length > 0) {
        settled += done.reduce((sum, token) => sum + token.raw.length, 0);
        const nodes = put(Object.assign(done, { links: tokens.links }));
        if (decorate) for (const node of nodes) if (node instanceof Element) decorate(node);
      }
      const rest = tokens.slice(keep);
      if (rest.length > 0) tail = put(Object.assign(rest, { links: tokens.links }));
    },
  };
}

/** Index of the last block that isn't blank: the one that may still change. @param {{ type: string }[]} tokens */
function lastBlock(tokens) {
  let at = tokens.length - 1;
  while (at > 0 && tokens[at]?.type === "space") at--;
  return Math.max(0, at);
}
