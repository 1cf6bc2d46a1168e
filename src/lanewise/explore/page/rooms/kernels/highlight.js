// Colours for code: a line of Python, CUDA C++, PTX or SASS, cut into pieces that each have a kind.

const NUMBER = String.raw`\b(?:0[xX][0-9a-fA-F]+|0[fFdD][0-9a-fA-F]{8,16}|\d+\.?\d*(?:[eE][-+]?\d+)?)[uUlLfF]*\b`;
const STRING = String.raw`[rbfRBF]?"(?:\\.|[^"\\])*"?|[rbfRBF]?'(?:\\.|[^'\\])*'?`;
const words = (text) => String.raw`\b(?:${text.trim().replaceAll(/\s+/g, "|")})\b`;
const RULES = {
  python: [
    ["comment", "#.*"], ["string", STRING], ["special", String.raw`@[\w.]+`],
    ["keyword", words("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield None True False")],
    ["name", String.raw`\blw\.[\w.]+`], ["number", NUMBER],
  ],
  cuda: [
    ["comment", String.raw`//.*|/\*.*?(?:\*/|$)`], ["special", String.raw`^\s*#\s*\w+`], ["string", STRING],
    ["keyword", words("__global__ __device__ __shared__ __constant__ __host__ __restrict__ __launch_bounds__ asm auto bool break case char class const constexpr continue do double else enum extern float for half if inline int long namespace return short signed sizeof static struct switch template typedef typename union unsigned using void volatile while int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t size_t dim3")],
    ["name", String.raw`\b(?:threadIdx|blockIdx|blockDim|gridDim)\b|\b__\w+`], ["number", NUMBER],
  ],
  ptx: [
    ["comment", String.raw`//.*|/\*.*?(?:\*/|$)`], ["string", STRING], ["name", String.raw`%[\w.]+`], ["special", String.raw`^\s*\.[a-z_]\w*|\$\w+`],
    ["keyword", String.raw`(?<=^\s*(?:@!?%\w+\s+)?)[a-z][\w.:]*(?=[\s;])`], ["number", NUMBER],
  ],
  sass: [
    ["comment", String.raw`/\*[^*]*\*/|//.*`], ["special", String.raw`@!?U?P[T\d]+|^\.L\S*`], ["name", String.raw`\bU?(?:R|P)(?:\d+|Z|T)\b(?:\.\w+)*|\bSR_[\w.]+|\bc\[[^\]]*\]\[[^\]]*\]`],
    ["keyword", String.raw`\b[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\b`], ["number", NUMBER],
  ],
};
const compiled = new Map();

// The language of a pane by its name.
export function languageOf(name) {
  if (name === "PTX" || /\.ptx$/.test(name)) return "ptx";
  if (name.startsWith("SASS")) return "sass";
  return /\.(py|pyw)$/.test(name) ? "python" : "cuda";
}

// A line as text and elements; what no rule knows stays plain.
export function highlighted(element, language, line) {
  if (!compiled.has(language)) compiled.set(language, new RegExp(RULES[language].map(([kind, rule]) => `(?<${kind}>${rule})`).join("|"), "g"));
  const parts = [];
  let end = 0;
  for (const match of line.matchAll(compiled.get(language))) {
    if (!match[0]) continue;
    if (match.index > end) parts.push(line.slice(end, match.index));
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    parts.push(element("span", { class: `is-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  if (end < line.length) parts.push(line.slice(end));
  return parts;
}
