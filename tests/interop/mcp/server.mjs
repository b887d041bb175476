/** A server made with the official TypeScript SDK, in one of its generations. `server.mjs GENERATION TRANSPORT` */

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

const [generation, transport] = process.argv.slice(2);

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PAGE = 100;

const text = (text) => ({ content: [{ type: "text", text }] });

/** What every generation offers. A tool gets its arguments, a way to notify, and the version that is spoken. */
const tools = {
  echo: ({ text: said }) => text(`echo: ${said}`),
  "odd name!": () => text("odd indeed"),
  speaks: (_, { version }) => text(`speaks ${version()}`),
  picture: () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }),
  refuse: () => ({ ...text("no such row"), isError: true }),
  count: async ({ to, everyMs }, { notify, progressToken }) => {
    for (let progress = 1; progress <= to; progress++) {
      await new Promise((resolve) => setTimeout(resolve, everyMs));
      if (progressToken !== undefined) {
        await notify({ method: "notifications/progress", params: { progressToken, progress, total: to } });
      }
    }
    return text(`counted to ${to}${progressToken === undefined ? ", unheard" : ""}`);
  },
  crash: () => process.exit(3),
  hang: (_, { signal }) =>
    new Promise(() => {
      signal?.addEventListener("abort", () => note("cancelled"));
    }),
};
const grown = new Set();

/** Tells the test what happened here. */
function note(what) {
  if (process.env.NOTES) appendFileSync(process.env.NOTES, `${what}\n`);
}

const listed = (name) => ({ name, description: `Does ${name}.`, inputSchema: { type: "object" } });

const handlers = {
  "tools/list": ({ params }) => {
    const many = Array.from({ length: Number(process.env.MANY ?? 0) }, (_, n) => `tool_${n}`);
    const all = [...Object.keys(tools), "grow", ...grown, ...many].map(listed);
    const from = Number(params?.cursor ?? 0);
    const next = from + PAGE < all.length ? { nextCursor: String(from + PAGE) } : {};
    return { tools: all.slice(from, from + PAGE), ...next };
  },
  "tools/call": ({ params }, about) => {
    if (params.name === "grow") {
      grown.add("late");
      return about.changed().then(() => text("grown"));
    }
    if (grown.has(params.name)) return text("late, but here");
    return tools[params.name](params.arguments ?? {}, about);
  },
  "resources/list": () => ({ resources: [{ uri: "note://one", name: "one", mimeType: "text/plain" }] }),
  "resources/read": ({ params }) => ({ contents: [{ uri: params.uri, mimeType: "text/plain", text: "written down" }] }),
};

const info = { name: "interop", version: "1.0.0" };
const options = { capabilities: { tools: { listChanged: true }, resources: {} } };

/** Generations with one connection per server: the version is what the answer to `initialize` says. */
async function classic(sdk) {
  const { Server } = await import(`${sdk}/server/index.js`);
  const types = await import(`${sdk}/types.js`);
  const schemas = {
    "tools/list": types.ListToolsRequestSchema,
    "tools/call": types.CallToolRequestSchema,
    "resources/list": types.ListResourcesRequestSchema,
    "resources/read": types.ReadResourceRequestSchema,
  };
  const connect = async (wire) => {
    const server = new Server(info, options);
    let version;
    const send = wire.send.bind(wire);
    wire.send = (message, ...more) => {
      version ??= message.result?.protocolVersion;
      return send(message, ...more);
    };
    for (const [method, handle] of Object.entries(handlers)) {
      server.setRequestHandler(schemas[method], (request, extra) =>
        handle(request, {
          version: () => version,
          progressToken: request.params?._meta?.progressToken,
          notify: extra.sendNotification ?? ((notification) => server.notification(notification)),
          changed: () => server.notification({ method: "notifications/tools/list_changed" }),
          signal: extra.signal,
        }),
      );
    }
    await server.connect(wire);
  };
  if (transport === "stdio") {
    const { StdioServerTransport } = await import(`${sdk}/server/stdio.js`);
    await connect(new StdioServerTransport());
  } else if (transport === "http") {
    const { StreamableHTTPServerTransport } = await import(`${sdk}/server/streamableHttp.js`);
    const sessions = new Map();
    listen(async (request, response) => {
      let wire = sessions.get(request.headers["mcp-session-id"]);
      if (!wire) {
        if (request.headers["mcp-session-id"]) return void response.writeHead(404).end();
        wire = new StreamableHTTPServerTransport({
          sessionIdGenerator: () => crypto.randomUUID(),
          onsessioninitialized: (id) => void sessions.set(id, wire),
        });
        await connect(wire);
      }
      await wire.handleRequest(request, response);
    });
  } else {
    const { SSEServerTransport } = await import(`${sdk}/server/sse.js`);
    const sessions = new Map();
    listen(async (request, response) => {
      if (request.method === "GET") {
        const wire = new SSEServerTransport("/post", response);
        sessions.set(wire.sessionId, wire);
        return connect(wire);
      }
      const wire = sessions.get(new URL(request.url, "http://here").searchParams.get("sessionId"));
      if (!wire) return void response.writeHead(404).end();
      await wire.handlePostMessage(request, response);
    });
  }
}

/** The generation that serves the newest protocol, where every request says what it speaks. */
async function modern() {
  const { Server, createMcpHandler } = await import("@modelcontextprotocol/server");
  let handler;
  const made = ({ era }) => {
    const server = new Server(info, options);
    for (const [method, handle] of Object.entries(handlers)) {
      server.setRequestHandler(method, (request, { mcpReq }) =>
        handle(request, {
          version: () => mcpReq.envelope?.["io.modelcontextprotocol/protocolVersion"] ?? era,
          progressToken: mcpReq._meta?.progressToken,
          notify: mcpReq.notify,
          changed: async () => (handler ? handler.notify.toolsChanged() : server.sendToolListChanged()),
          signal: mcpReq.signal,
        }),
      );
    }
    return server;
  };
  if (transport === "stdio") {
    const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
    serveStdio(made);
  } else {
    const { toNodeHandler } = await import("@modelcontextprotocol/node");
    handler = createMcpHandler(made);
    listen(toNodeHandler(handler));
  }
}

/** Serves on a free port, and says which. */
function listen(handle) {
  const server = createServer((request, response) => {
    Promise.resolve(handle(request, response)).catch((error) => {
      console.error(error);
      if (!response.headersSent) response.writeHead(500).end();
    });
  });
  server.listen(0, "127.0.0.1", () => console.log(`listening ${server.address().port}`));
}

note("started");
const sdks = { 2024: "mcp-sdk-of-2024", 2025: "@modelcontextprotocol/sdk" };
await (sdks[generation] ? classic(sdks[generation]) : modern());
