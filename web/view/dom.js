/** How are nodes made? Text always becomes text nodes; there is no way here to pass markup. */

/** @typedef {Node | string | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes] `onclick` and the like take a function; null, undefined and false leave the attribute out.
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
  return element;
}

/** @param {Child[]} children @returns {(Node | string)[]} */
export function present(children) {
  return /** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== undefined && child !== false));
}

/**
 * The element with this id, which the page's own HTML has.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`page: #${id} is missing`);
  return element;
}

/** Sets text only when it differs, so that a screen reader or a selection isn't disturbed. @param {HTMLElement} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
