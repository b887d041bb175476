/**
 * The page of the peer, in front of our daemon: its static files are served as they are in its npm package, everything
 * else goes to the daemon. The page believes that both are one server, as they are at home.
 */

import { createServer, request } from "node:http";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const files = fileURLToPath(new URL("web-shell/", import.meta.resolve("@qwen-code/qwen-code/package.json")));

const types = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".svg": "image/svg+xml",
  ".png": "image/png", ".webmanifest": "application/manifest+json", ".woff2": "font/woff2", ".woff": "font/woff", ".ttf": "font/ttf", ".wasm": "application/wasm",
};

/** Starts it in front of the daemon at `daemon`. `calls` has what the page asked the daemon: method, path, body, status. */
export async function startProxy(daemon) {
  const target = new URL(daemon);
  const calls = [];
  const server = createServer(async (incoming, outgoing) => {
    const file = await fileFor(incoming);
    if (file) {
      outgoing.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream", "cache-control": "no-store" });
      createReadStream(file).pipe(outgoing);
      return;
    }
    const call = { method: incoming.method, path: incoming.url, body: "", status: undefined };
    calls.push(call);
    // What its own server would strip: the page and the daemon are of one origin.
    const headers = { ...incoming.headers, host: target.host };
    delete headers.origin;
    const onward = request({ host: target.hostname, port: target.port, method: incoming.method, path: incoming.url, headers }, (answer) => {
      call.status = answer.statusCode;
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => onward.destroy());
    incoming.on("data", (chunk) => (call.body += chunk)).pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { url: `http://127.0.0.1:${server.address().port}`, calls, close };
}

/** The page's file for a request; the page itself where somebody opens a session in a browser. */
async function fileFor({ method, url, headers }) {
  if (method !== "GET") return undefined;
  const path = normalize(decodeURIComponent(new URL(url, "http://page").pathname));
  const page = path === "/" || (path.startsWith("/session/") && (headers.accept ?? "").includes("text/html"));
  const file = join(files, page ? "index.html" : path);
  const found = await stat(file).catch(() => undefined);
  return found?.isFile() ? file : undefined;
}
