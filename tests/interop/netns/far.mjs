/** One request, made from wherever this process is: a JSON description as the argument, the answer on stdout. */

const { url, method = "GET", headers = {}, body } = JSON.parse(process.argv[2] ?? "{}");
const answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
const text = await answer.text();
process.stdout.write(JSON.stringify({ status: answer.status, body: text ? JSON.parse(text) : null }));
