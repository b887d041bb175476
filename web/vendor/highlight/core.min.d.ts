/** The part of highlight.js that the page uses. */
declare const hljs: {
  registerLanguage(name: string, language: unknown): void;
  highlight(code: string, options: { language: string }): { value: string };
};
export default hljs;
