/** The part of DOMPurify that the page uses. */
export interface Config {
  ALLOWED_TAGS: string[];
  ALLOWED_ATTR: string[];
  ALLOWED_URI_REGEXP?: RegExp;
  ALLOW_DATA_ATTR: boolean;
  ALLOW_ARIA_ATTR: boolean;
  RETURN_DOM_FRAGMENT: true;
}
export interface Purifier {
  (window: Window): Purifier;
  addHook(name: "afterSanitizeAttributes", hook: (node: Element) => void): void;
  sanitize(html: string, config: Config): DocumentFragment;
}
declare const DOMPurify: Purifier;
export default DOMPurify;
