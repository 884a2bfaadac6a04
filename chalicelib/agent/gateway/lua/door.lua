-- The path of a request through the gateway, phase by phase. The decisions of each step are in modules of their own.

local access = require "access"
local balancer = require "ngx.balancer"
local callers = require "callers"
local counting = require "counting"
local dead_hosts = require "dead_hosts"
local headers = require "headers"
local holding = require "holding"
local json = require "cjson.safe"
local limits = require "limits"
local models = require "models"
local problems = require "problems"
local replicas = require "replicas"
local services = require "services"
local states = require "states"

local M = {}
local BUFFERED = 1024 * 1024  -- bytes of a body that is read first, so that it can be sent to another replica
local STEPS = 13  -- @streamed_N takes 2^N MB in chunks
local HEAD, LINES = 16 * 1024, 128
local BODY = 64 * 1024 * 1024  -- the largest body of a request to a model
local CONNECT, BRIEFLY = 5, 1  -- seconds to connect to a replica: to the only one, or to one of several
local TRIES = 3
local BODILESS = { GET = true, HEAD = true, OPTIONS = true, DELETE = true }  -- they rarely have a body
local CHALLENGES = "/.well-known/acme-challenge/"
local OFF = "This service has no replicas, as configured. Its owner can apply it with another `replicas`."

local TROUBLES = {
    [400] = { "bad_request", "The request isn't valid HTTP" },
    [405] = { "wrong_method", "This method isn't passed on" },
    [413] = { "body_too_large", "The request's body is larger than allowed" },
    [414] = { "uri_too_long", "The request's URL is larger than 16 KB" },
    [431] = { "headers_too_large", "The request's headers are larger than 16 KB together" },
    [500] = { "error", "The gateway failed; error.log in its folder, on its host, says why" },
    [501] = { "not_implemented", "The only `Transfer-Encoding` that is understood here is `chunked`" },
    [502] = { "bad_gateway", "The replica can't be reached, or broke off before it answered" },
    [503] = { "no_replica", "No replica of the service is ready; try again in 5 s" },
    [504] = { "timeout", "The replica didn't answer in time" },
    [505] = { "bad_version", "This version of HTTP isn't spoken here; send HTTP/1.1" },
}

-- Admission -------------------------------------------------------------------------------------------------------

local function refuse_caller()
    local other = "or a valid one for its services (`dstack service token`): `Authorization: Bearer …`"
    problems.refuse(403, "forbidden", "If a service is served here, send the token of a member of its project, " .. other)
end

local function may_come(caller, project, run)
    local status = access.judge(caller, project, run)
    if status == 403 then
        refuse_caller()
    elseif status ~= 200 then
        ngx.header["Retry-After"] = 5
        problems.refuse(503, "unjudged", "Nobody can say right now whether the token is good; try again in 5 s")
    end
end

-- `address`: the same address over https, if it is known.
local function refuse_in_the_open(address)
    local hint = "this gateway has no https. Whoever runs it can give it a `certificate`"
    if address then
        hint = "call " .. address .. ", with a token that hasn't been sent like this"
    elseif SECURE then
        hint = "call the service over https, once its certificate is issued; with `https: false` it gets none"
    end
    local why = "Others can read a token that comes over plain http from another machine, so none is taken: "
    problems.refuse(403, "insecure", why .. hint)
end

local function preflight()
    ngx.header["Access-Control-Allow-Origin"] = "*"
    ngx.header["Access-Control-Allow-Methods"] = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
    ngx.header["Access-Control-Allow-Headers"] = ngx.var.http_access_control_request_headers or "*"
    ngx.header["Access-Control-Max-Age"] = 600
    return ngx.exit(204)
end

local function asks_first()
    return ngx.var.request_method == "OPTIONS" and ngx.var.http_origin and ngx.var.http_access_control_request_method
end

-- Paths that some servers read as leading upwards: prefixes' limits and routers' paths must hold for every reader.
local function climbs(target)
    if not target:find(".", 1, true) and not target:find("%", 1, true) then
        return false
    end
    local path = target:match("^[^?]*"):gsub("%%2[eE]", "."):gsub("%%2[fF]", "/"):gsub("%%5[cC]", "/"):gsub("\\", "/") .. "/"
    path = path:gsub("%%3[bB]", ";"):gsub("/(%.%.?);", "/%1/")  -- some servers drop a `;` and what follows
    return path:find("/./", 1, true) or path:find("/../", 1, true)
end

-- A head that every server reads alike: nginx accepts more, and passes that on. (nginx replaces the first blank at the
-- end of a value with a line feed.)
local NAME, VALUE = [[[!#$%&'*+.^_`|~0-9A-Za-z-]+:]], [[[\t\x20-\x7e\x80-\xff]*\r?\n]]
local STRICT = [[^[!#$%&'*+.^_`|~0-9A-Za-z-]+ (?:/|\*|(?i:https?)://)[\x21-\x7e]* HTTP/1\.[01]\r?\n(?:]]
    .. NAME .. VALUE .. [[(?:[\t ]*\r?\n)?){0,]] .. LINES .. [[}(?:\r?\n)?$]]
local STRICT2 = "^(?:" .. NAME .. VALUE .. ")*$"

-- The headers of HTTP/2 as lines, and whether they exceed the limit.
local function lines()
    local found, more = ngx.req.get_headers(LINES)
    local text = {}
    for name, value in pairs(found) do
        for _, each in ipairs(type(value) == "table" and value or { value }) do
            text[#text + 1] = name .. ": " .. each .. "\r\n"
        end
    end
    return table.concat(text), more
end

local function check_size(size)
    if size > HEAD then
        problems.refuse(431, "headers_too_large", "The request's headers are larger than 16 KB together")
    end
end

local function is_strict(caller)
    if not caller.http2 then
        return ngx.re.find(ngx.req.raw_header(), STRICT, "jo")
    end
    local text, more = lines()
    check_size(#ngx.var.request_uri + #text)  -- nginx's length is that of the compressed headers
    return not more and ngx.re.find(text, STRICT2, "jo")
end

local function check_form(caller)
    if not is_strict(caller) then
        problems.malformed("The request isn't valid HTTP, or has more than " .. LINES .. " headers")
    elseif caller.hostless and not caller.http2 then
        problems.malformed("The request needs one `Host` header")
    elseif caller.two_hosts then
        problems.malformed("The request's target and its `Host` name different hosts; send a path")
    end
end

local function check_head(caller)
    if not caller.http2 then
        check_size(tonumber(ngx.var.request_length))
    end
    if climbs(ngx.var.request_uri) then
        problems.refuse(400, "bad_path", "The path has a segment `.` or `..`; send the path that it leads to")
    end
end

local function check_limit(service)
    local wait, left = limits.judge(service.run, service.limits)
    if left then
        ngx.var.remaining = left
    end
    if wait then
        ngx.header["Retry-After"] = math.max(1, math.ceil(wait))
        problems.refuse(429, "rate_limited", "Too many requests; try again after the seconds in `Retry-After`")
    end
end

-- The announced length of the body, or nil.
local function body_size()
    return tonumber(ngx.var.content_length)
end

local function check_body(size, most)
    if size and size > most then
        problems.refuse(413, "body_too_large", "The request's body is larger than the " .. most .. " bytes allowed")
    end
end

-- A caller without a token is redirected to https, if the service has it. A token that came over plain http isn't
-- accepted: its sender would go on exposing it, and never notice.
local function check_way(caller, service)
    if caller.secure then
        return
    end
    local port = service.https == 443 and "" or service.https and string.format(":%d", service.https)
    local there = port and "https://" .. caller.host .. port
    if service.auth and (caller.authorization or not there) and access.in_the_open(caller) then
        refuse_in_the_open(there)
    elseif there then
        ngx.header["Location"] = there .. ngx.var.request_uri
        ngx.req.discard_body()
        return ngx.exit(308)
    end
end

local function check_path(service)
    local path = service.paths and ngx.var.uri
    if path and not service.paths[path] and path:sub(1, 4) ~= "/v1/" then
        problems.refuse(403, "forbidden", "The service's router doesn't serve " .. path:sub(1, 200))
    end
end

-- Count a request, and wait for a replica if there is none. `at`: when the service was looked up.
local function go_on(host, service, at, models, only)
    local state = {
        host = host,
        service = service,
        models = models,
        only = only,
        at = at,  -- later the time at which it was passed on
        since = ngx.now(),
        held = false,
        job = false,  -- that of the replica which has it, and its host
        at_host = false,
        tried = false,  -- or a set of the jobs that had it and their hosts
        trouble = false,  -- or the status with which it ends, because nginx turns every refusal of `choose` into 500
        refused = false,  -- the answer is the gateway's own
        answered = false,  -- a replica's answer has begun, and its body
        came = false,
    }
    states.begin(state)
    counting.begin(service.run)
    if #service.replicas == 0 and service.off then
        problems.refuse(503, "no_replica", OFF)
    elseif #service.replicas == 0 and not holding.wait(host, service, state) then
        ngx.header["Retry-After"] = 5
        problems.refuse(503, "no_replica", "No replica of the service is ready yet; try again in 5 s")
    end
end

local function admit(caller, size)
    local service, at = caller.service, ngx.now()
    check_head(caller)
    if service.model and asks_first() then
        return preflight()
    end
    check_way(caller, service)
    if service.auth then
        may_come(caller, service.project, service.run)
    end
    check_path(service)
    check_limit(service)
    check_body(size, service.body)
    headers.clean(caller, service)
    go_on(caller.host, service, at, false, false)
end

function M.admit()
    admit(callers.current(), body_size())
end

-- gRPC needs HTTP/2 up to the replica. Its clients read two headers instead of a body.
local function refuse_grpc()
    local kind = ngx.var.http_content_type or ""
    if kind:match("^application/grpc[;+]") or kind == "application/grpc" then
        ngx.req.discard_body()
        ngx.header["Content-Type"] = "application/grpc"
        ngx.header["grpc-status"] = 12
        ngx.header["grpc-message"] = "Gateways pass on HTTP, not gRPC: forward the port with `dstack attach`"
        return ngx.exit(200)
    end
end

-- The control plane sends agents to https if the gateway has it, so a caller over plain http isn't an agent.
local function check_agents_way(caller)
    if SECURE and not caller.secure then
        problems.refuse(403, "forbidden", "Streams of agents come over https only")
    end
end

-- A host that isn't served answers like one whose service needs a token, so that callers can't tell which are served.
local function refuse_host(caller)
    check_head(caller)
    check_way(caller, { auth = true, https = SECURE })
    refuse_caller()
end

function M.enter()
    local caller = callers.current()
    check_form(caller)
    local service = caller.service
    if caller.http2 then
        refuse_grpc()
    end
    if not service then
        refuse_host(caller)
    elseif service.models then
        return ngx.exec("@models")
    end
    local size = body_size()
    local unannounced = caller.http2 and not size
    if unannounced and BODILESS[ngx.var.request_method] then
        return ngx.exec("@short")
    elseif caller.chunked or unannounced or size and size > BUFFERED then
        local step = 0
        while BUFFERED * 2 ^ step < service.body and step < STEPS do
            step = step + 1
        end
        return ngx.exec("@streamed_" .. step)
    end
    admit(caller, size)
end

-- Below CHALLENGES
function M.answer_challenge()
    local found = services.entry("challenge", ngx.var.uri:sub(#CHALLENGES + 1))
    if not found then
        return M.enter()
    end
    ngx.header["Content-Type"] = "text/plain"
    ngx.print(found.answer)
    return ngx.exit(200)
end

-- Below /agent/streams/, which agents dial at the gateway's own host or address
function M.enter_agent()
    local caller = callers.current()
    if caller.service and not caller.service.models then
        return M.enter()
    end
    check_agents_way(caller)
    if caller.websocket then
        headers.upgrade()
    end
    return ngx.exec("@agents")
end

function M.admit_to_models()
    ngx.ctx.models = true
    local caller = callers.current()
    check_head(caller)
    if asks_first() then
        return preflight()
    end
    local door = caller.service
    if access.in_the_open(caller) then
        refuse_in_the_open()
    end
    may_come(caller, door.project, "")
    local call = models.read()
    if call.kind == "models" then
        ngx.header["Content-Type"] = "application/json"
        ngx.print(json.encode(models.list(door, call.name)))
        return ngx.exit(200)
    end
    check_body(body_size(), BODY)
    local host, only
    if call.kind == "stored" then
        host, only = models.maker(door, call.id)
    else
        local named = models.named(door, call.path)
        local before = call.path == "responses" and named.previous_response_id
        if before then
            host, only = models.maker(door, before)
        else
            host = models.pick(door, named.model)
        end
        ngx.ctx.watch = call.path == "responses" and { project = door.project, host = host } or nil
    end
    local service = services.at(host)
    ngx.req.set_uri(service.model .. "/" .. call.path)
    check_limit(service)
    headers.clean(caller, door)
    go_on(host, service, ngx.now(), true, only or false)
end

-- The choice of a replica ----------------------------------------------------------------------------------------

local function give_up(state, status)
    state.trouble = TROUBLES[status] and status or 502
    return ngx.exit(ngx.ERROR)
end

local function note_failure(state, status)
    if ngx.now() - state.at > CONNECT + 1 then
        return give_up(state, status)  -- the replica has worked on it for long, so no other gets it
    end
    replicas.mark(state.job)
    counting.give(state.job)
    state.tried = state.tried or {}
    state.tried[state.job], state.tried[state.at_host] = true, true
    state.job, ngx.var.replica = false, ""
end

function M.choose()
    local state = states.current()
    local failed, status = balancer.get_last_failure()
    if failed then
        note_failure(state, status)
    else
        balancer.set_more_tries(TRIES - 1)
    end
    local now, service = ngx.now(), state.service
    if failed or now ~= state.at then  -- the verdict or the body may have taken a while
        service = services.at(state.host)
    end
    local replica = service and service.run == state.service.run and replicas.pick(service.replicas, state.tried, state.only)
    if not replica then
        return give_up(state, 503)
    end
    state.job, state.at_host, state.at, ngx.var.replica = replica.job, replica.host, now, replica.job
    counting.take(replica.job)
    local set, problem = balancer.set_current_peer(replica.address, replica.port)
    if not set then
        ngx.log(ngx.ERR, "replica ", replica.job, " at ", replica.address, ": ", problem)
        return give_up(state, 502)
    end
    if replica.address:sub(1, 5) ~= "unix:" then
        dead_hosts.watch()
    end
    if #service.replicas > 1 then
        balancer.set_timeouts(BRIEFLY)
    end
end

-- The response ----------------------------------------------------------------------------------------------------

function M.answer()
    local state = states.current()
    local open
    if state then
        open = state.models or state.service.model
    else
        open = ngx.ctx.models
    end
    if open and ngx.var.http_origin and not ngx.header["Access-Control-Allow-Origin"] then
        ngx.header["Access-Control-Allow-Origin"] = "*"
    end
    if state and state.job then
        if ngx.status < 200 and (ngx.status ~= 101 or ngx.var.upgrade_wanted == "") then
            ngx.log(ngx.WARN, "replica ", state.job, " sends ", ngx.status, " unasked, which nginx takes for its answer")
            return ngx.exit(ngx.ERROR)  -- or the client would take the next response for this one
        end
        headers.clean_response()
        state.answered = not state.refused and ngx.status ~= 101
    end
end

-- Called with each part of every body, so it does nothing twice.
function M.pass()
    local state = states.current()
    if not state then
        return
    end
    if state.answered and not state.came and ngx.arg[1] ~= "" then
        state.came = true
        counting.took(state.service.run, "first_byte", ngx.now() - state.since)
    end
    if state.models and ngx.ctx.watch then
        models.watch(ngx.arg[1])
    end
end

local function count_times(state)
    local took = ngx.now() - state.since
    if not state.came then  -- the answer has no body
        counting.took(state.service.run, "first_byte", took)
    end
    counting.took(state.service.run, "whole", took)
end

function M.trouble()
    local state = states.current()
    if state then
        state.refused = true
    end
    local status = state and state.trouble or ngx.status
    local code, text = unpack(TROUBLES[status])
    if status == 400 and (ngx.var.malformed or "") ~= "" then
        text = ngx.var.malformed
    end
    if status == 503 then
        ngx.header["Retry-After"] = 5
    end
    problems.refuse(status, code, text)
end

function M.done()
    local state = states.finish()
    if not state then
        return
    end
    if state.job then
        counting.give(state.job)
    end
    if state.held then
        counting.release(state.service.run)
    end
    if state.answered then
        count_times(state)
    end
    counting.finish(state.service.run)
end

return M
