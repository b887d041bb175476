/** The part of marked that the page uses. */
export interface Token {
  type: string;
  raw: string;
}
export type TokensList = Token[] & { links: Record<string, unknown> };
export interface Renderer {
  html(token: { text: string }): string;
  image(token: { href: string; text: string }): string;
  checkbox(token: { checked: boolean }): string;
  code(token: { text: string; lang?: string }): string;
}
export class Marked {
  constructor(options: { gfm?: boolean; renderer?: Partial<Renderer> });
  lexer(source: string): TokensList;
  parser(tokens: Token[]): string;
}
