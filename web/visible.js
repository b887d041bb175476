/**
 * Which characters of a text would a reader not see?
 *
 * A person approves what is on the screen, so that characters which hide, reorder or imitate others are spelled out:
 * bidirectional controls ("Trojan Source", CVE-2021-42574), zero-width characters, control characters, odd spaces. The two
 * selectors between an emoji's text and picture form stay: they change nothing that can be approved. Pure.
 */

/** Everything but tab and newline from C0 and C1, format characters, and spaces that aren't the space. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e01ef}]/gu;

/**
 * @param {string} text
 * @returns {{ text: string, hidden: boolean }[]} The text in order; hidden pieces read `U+202E`.
 */
export function spellOut(text) {
  /** @type {{ text: string, hidden: boolean }[]} */
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), hidden: false });
    const code = (match[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
    pieces.push({ text: `U+${code}`, hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length || pieces.length === 0) pieces.push({ text: text.slice(from), hidden: false });
  return pieces;
}

/** The escape sequences of terminals removed from tool output. @param {string} text */
export function withoutAnsi(text) {
  return text.replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g, "");
}
