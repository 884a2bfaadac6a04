-- The one address of all models of a project: finds the service for the model that a request names. The body is passed
-- on unchanged. A response that an engine stores is known only to the replica that made it, so that replica is
-- recorded.

local heads = require "heads"
local problems = require "problems"
local services = require "services"
local states = require "states"

local M = {}
local READ = 1024 * 1024  -- bytes of a body in which the name must be
local FIRST_ID = 16 * 1024  -- bytes of a response in which its id must be
local MENTIONED = 20
local JSON_CALLS = {
    ["chat/completions"] = true, completions = true, embeddings = true, responses = true, rerank = true,
    ["audio/speech"] = true,
}
local FORM_CALLS = { ["audio/transcriptions"] = true, ["audio/translations"] = true }
local ABOUT_ONE = {
    [""] = { GET = true, DELETE = true }, ["/input_items"] = { GET = true }, ["/cancel"] = { POST = true },
}
local FIELDS = { model = true, previous_response_id = true }
local makers = ngx.shared.makers

-- The API calls: {kind, path, …}, with or without `v1/` in front.
function M.read()
    local path = ngx.var.request_uri:match("^/([^?]*)"):gsub("^v1/", "")
    local method, call, methods = ngx.var.request_method, nil, nil
    local id, about = path:match("^responses/(%w[%w_.:-]*)(.*)$")
    if JSON_CALLS[path] or FORM_CALLS[path] then
        call, methods = { kind = "call", path = path }, { POST = true }
    elseif path == "models" or path:sub(1, 7) == "models/" then
        local name = path:sub(8)
        call, methods = { kind = "models", name = name ~= "" and ngx.unescape_uri(name) }, { GET = true, HEAD = true }
    elseif id and #id <= 256 and ABOUT_ONE[about] then
        call, methods = { kind = "stored", path = path, id = id }, ABOUT_ONE[about]
    end
    if not call then
        problems.refuse(404, "unknown_url", "There is no `" .. path:sub(1, 100) .. "` at this address of all models")
    elseif not methods[method] then
        problems.refuse(405, "method_not_allowed", "`" .. path:sub(1, 100) .. "` doesn't take " .. method)
    end
    return call
end

local function known(door, name)
    local model = door.models[name]
    return { id = name, object = "model", created = model.created, owned_by = door.owner }
end

local function names(door)
    local found = {}
    for name in pairs(door.models) do
        found[#found + 1] = name
    end
    table.sort(found)
    return found
end

local function nobody(door, name)
    local there = names(door)
    local hint = "no service of this project has a `model`; run one that does"
    if #there > 0 then
        hint = "there are `" .. table.concat(there, "`, `", 1, math.min(#there, MENTIONED)) .. "`"
    end
    local text = "No running service serves the model `" .. name:sub(1, 200) .. "`: " .. hint
    problems.refuse(404, "model_not_found", text, "model")
end

function M.list(door, name)
    if name then
        return door.models[name] and known(door, name) or nobody(door, name)
    end
    local found = {}
    for place, each in ipairs(names(door)) do
        found[place] = known(door, each)
    end
    return { object = "list", data = setmetatable(found, require("cjson.safe").array_mt) }
end

-- The beginning of the body, and whether it is complete.
local function beginning()
    ngx.req.read_body()
    local text, path = ngx.req.get_body_data(), ngx.req.get_body_file()
    if path then
        local file = assert(io.open(path, "rb"))
        text = file:read(READ)
        local more = file:read(1)
        file:close()
        return text or "", not more
    end
    return (text or ""):sub(1, READ), not text or #text <= READ
end

-- The relevant fields of the body. Refuses a body that doesn't name a model.
function M.named(door, path)
    local text, complete = beginning()
    local kind = ngx.var.http_content_type or ""
    local found = FORM_CALLS[path] and heads.form(text, kind, FIELDS) or heads.json(text, FIELDS)
    if (found.model or "") ~= "" then
        return found
    end
    local there = names(door)
    if not complete and #there == 1 then
        found.model = there[1]
        return found
    end
    local hint = FORM_CALLS[path] and "The body must be a form with a part `model`"
        or "The body must be a JSON object with a `model`, for instance {\"model\": \"…\"}"
    if not complete then
        hint = "The first MB of the body don't say which `model` is asked for: put it first, or use the service's own URL"
    end
    problems.refuse(400, "model_not_given", hint, "model")
end

-- The host of one of a model's services, chosen at random, weighted by ready replicas.
function M.pick(door, name)
    local model = door.models[name] or nobody(door, name)
    local total, weights = 0, {}
    for place, host in ipairs(model.hosts) do
        local service = services.at(host)
        weights[place] = service and #service.replicas or 0
        total = total + weights[place]
    end
    local at = total > 0 and math.random(total) or 0
    for place, host in ipairs(model.hosts) do
        at = at - weights[place]
        if at <= 0 and (weights[place] > 0 or total == 0) then
            return host
        end
    end
end

-- The maker of a response: its service's host and its job. Refuses an unknown response, or one whose replica is gone.
function M.maker(door, id)
    local host, job = (makers:get(door.project .. "|" .. id) or ""):match("^(%S+) (%S+)$")
    local service = host and services.at(host)
    for _, replica in ipairs(service and service.replicas or {}) do
        if replica.job == job then
            return host, job
        end
    end
    local text = host and "The replica that made the response `" .. id .. "` is gone, and the response with it"
        or "The response `" .. id .. "` isn't known here: the latest thousands are, since the gateway was started"
    problems.refuse(404, "response_not_found", text)
end

-- Search for the id in the beginning of a replica's response, part by part.
function M.watch(part)
    local watch = ngx.ctx.watch
    watch.seen = (watch.seen or "") .. part
    local id = watch.seen:match('"id"%s*:%s*"([^"\\]+)"')
    if id and #id <= 256 then
        makers:set(watch.project .. "|" .. id, watch.host .. " " .. states.current().job)
    end
    if id or #watch.seen > FIRST_ID then
        ngx.ctx.watch = nil
    end
end

return M
