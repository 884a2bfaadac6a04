"""The HTTP contract: the type of every answer, a file for each noun. What agents and gateways send and get is in
`agent` and `agent_gateway`, which have names of their own and are imported by themselves.

Answers are plain dicts, so these types cost nothing while a request is answered. `api/wire`, the routes and the command
line import them for the type checker alone; the OpenAPI document, the pages and the tests load them. A type has a
docstring, and a key has one below it where its name doesn't say enough.
"""

from chalicelib.contract.backends import (
    Backend as Backend,
    BackendConfig as BackendConfig,
    BackendYaml as BackendYaml,
)
from chalicelib.contract.configurations import (
    Automation as Automation,
    ServiceToken as ServiceToken,
    Template as Template,
    TemplateParameter as TemplateParameter,
)
from chalicelib.contract.documents import (
    AutomationList as AutomationList,
    BackendCheck as BackendCheck,
    BackendList as BackendList,
    CheckedBackend as CheckedBackend,
    ErrorDetails as ErrorDetails,
    ErrorDocument as ErrorDocument,
    ErrorPlace as ErrorPlace,
    EventList as EventList,
    ExportList as ExportList,
    FleetJoins as FleetJoins,
    FleetList as FleetList,
    GatewayList as GatewayList,
    ImportList as ImportList,
    JobSamples as JobSamples,
    KnownProject as KnownProject,
    Metrics as Metrics,
    OfferGroup as OfferGroup,
    OfferGroups as OfferGroups,
    OfferList as OfferList,
    OfferRequirements as OfferRequirements,
    PRINTED as PRINTED,
    PresetList as PresetList,
    ProjectList as ProjectList,
    ProjectMembers as ProjectMembers,
    ProjectQuota as ProjectQuota,
    Ps as Ps,
    ScimTokenCreate as ScimTokenCreate,
    ScimTokenList as ScimTokenList,
    SecretGet as SecretGet,
    SecretList as SecretList,
    ServerCostDocument as ServerCostDocument,
    ServerSloDocument as ServerSloDocument,
    ServerInfoDocument as ServerInfoDocument,
    TokenCreate as TokenCreate,
    TokenList as TokenList,
    UserCreate as UserCreate,
    UserKeys as UserKeys,
    UserList as UserList,
    VolumeList as VolumeList,
)
from chalicelib.contract.events import (
    AnyTarget as AnyTarget,
    Event as Event,
    EventTarget as EventTarget,
    Named as Named,
    StateChange as StateChange,
    Subject as Subject,
    TargetType as TargetType,
)
from chalicelib.contract.files import (
    Archive as Archive,
    Repo as Repo,
    RepoCreds as RepoCreds,
    RepoWithCreds as RepoWithCreds,
)
from chalicelib.contract.fleets import (
    CreatedJoin as CreatedJoin,
    Fleet as Fleet,
    FleetStatus as FleetStatus,
    Join as Join,
    JoinStatus as JoinStatus,
)
from chalicelib.contract.gateways import (
    Gateway as Gateway,
    GatewayReplica as GatewayReplica,
    GatewayReplicaStatus as GatewayReplicaStatus,
    GatewayStatus as GatewayStatus,
    GatewayWithCertificates as GatewayWithCertificates,
    HostCertificate as HostCertificate,
)
from chalicelib.contract.instances import (
    HealthCheck as HealthCheck,
    HealthChecks as HealthChecks,
    HealthEvent as HealthEvent,
    HealthStatus as HealthStatus,
    Instance as Instance,
    InstanceReason as InstanceReason,
    InstanceStatus as InstanceStatus,
)
from chalicelib.contract.jobs import (
    ConnectionInfo as ConnectionInfo,
    Job as Job,
    JobReason as JobReason,
    JobStatus as JobStatus,
    Login as Login,
    ProbeState as ProbeState,
    ProvisioningData as ProvisioningData,
    PullProgress as PullProgress,
    RuntimeData as RuntimeData,
    SshProxy as SshProxy,
    Submission as Submission,
)
from chalicelib.contract.observations import (
    JobMetrics as JobMetrics,
    LogPage as LogPage,
    LogRecord as LogRecord,
    OpenedStream as OpenedStream,
    Series as Series,
)
from chalicelib.contract.offers import (
    Availability as Availability,
    Disk as Disk,
    FloatRange as FloatRange,
    Gpu as Gpu,
    GpuGroup as GpuGroup,
    GpuList as GpuList,
    InstanceType as InstanceType,
    IntRange as IntRange,
    Offer as Offer,
    OffersAge as OffersAge,
    OffersAsked as OffersAsked,
    Resources as Resources,
)
from chalicelib.contract.plans import (
    FleetPlan as FleetPlan,
    GatewayPlan as GatewayPlan,
    JobPlan as JobPlan,
    Note as Note,
    RunPlan as RunPlan,
)
from chalicelib.contract.problems import (
    Denial as Denial,
    Denied as Denied,
    Failure as Failure,
    NoRoute as NoRoute,
    Problem as Problem,
)
from chalicelib.contract.presets import (
    Benchmark as Benchmark,
    Preset as Preset,
    PresetAgent as PresetAgent,
    PresetMachine as PresetMachine,
    PresetStatus as PresetStatus,
    PresetTrial as PresetTrial,
)
from chalicelib.contract.projects import (
    Export as Export,
    FleetReference as FleetReference,
    Import as Import,
    ImportedExport as ImportedExport,
    Limits as Limits,
    Member as Member,
    MemberPermissions as MemberPermissions,
    Project as Project,
    ProjectBackend as ProjectBackend,
    ProjectBackendConfig as ProjectBackendConfig,
    ProjectPage as ProjectPage,
    ProjectReference as ProjectReference,
    Quota as Quota,
    Secret as Secret,
    Used as Used,
    UserQuota as UserQuota,
)
from chalicelib.contract.runs import (
    ModelSpec as ModelSpec,
    OpenAiOptions as OpenAiOptions,
    Run as Run,
    RunFleet as RunFleet,
    RunReason as RunReason,
    RunStatus as RunStatus,
    Scale as Scale,
    Service as Service,
    ServiceModel as ServiceModel,
    ServiceOptions as ServiceOptions,
)
from chalicelib.contract.server import (
    CostLine as CostLine,
    CostPace as CostPace,
    Health as Health,
    RetentionDays as RetentionDays,
    ServerCost as ServerCost,
    ServerObjective as ServerObjective,
    ServerSlo as ServerSlo,
    ServerInfo as ServerInfo,
    ServerUsage as ServerUsage,
    StoragePart as StoragePart,
    SubscriptionState as SubscriptionState,
)
from chalicelib.contract.specs import (
    App as App,
    CountRange as CountRange,
    CpuRequirement as CpuRequirement,
    DiskRequirement as DiskRequirement,
    FileArchive as FileArchive,
    FleetSpec as FleetSpec,
    FolderMount as FolderMount,
    GatewaySpec as GatewaySpec,
    GpuRequirement as GpuRequirement,
    HttpHeader as HttpHeader,
    JobSpec as JobSpec,
    Probe as Probe,
    RegistryAuth as RegistryAuth,
    RequiredResources as RequiredResources,
    Requirements as Requirements,
    RetryPolicy as RetryPolicy,
    RunSpec as RunSpec,
    SizeRange as SizeRange,
    SshKey as SshKey,
    UnixUser as UnixUser,
    UtilizationPolicy as UtilizationPolicy,
    VolumeMount as VolumeMount,
)
from chalicelib.contract.users import (
    CreatedScimToken as CreatedScimToken,
    ScimToken as ScimToken,
    AccessToken as AccessToken,
    Authorization as Authorization,
    CreatedAccessToken as CreatedAccessToken,
    DeviceCode as DeviceCode,
    NextRedirect as NextRedirect,
    ProgramSignOn as ProgramSignOn,
    PublicKey as PublicKey,
    SignInCode as SignInCode,
    SignOnProvider as SignOnProvider,
    User as User,
    UserCreds as UserCreds,
    UserPage as UserPage,
    UserPermissions as UserPermissions,
    UserWithCreds as UserWithCreds,
    Verb as Verb,
)
from chalicelib.contract.v1.changes import (
    V1Changes as V1Changes,
    V1Removed as V1Removed,
)
from chalicelib.contract.v1.costs import (
    V1Costs as V1Costs,
    V1CostSeries as V1CostSeries,
    V1CostsOfMonth as V1CostsOfMonth,
    V1CostStep as V1CostStep,
)
from chalicelib.contract.v1.gateways import (
    V1Certificate as V1Certificate,
    V1Gateway as V1Gateway,
    V1GatewayPage as V1GatewayPage,
    V1GatewayReplica as V1GatewayReplica,
    V1GatewaySummary as V1GatewaySummary,
)
from chalicelib.contract.v1.history import (
    V1Event as V1Event,
    V1EventPage as V1EventPage,
    V1Target as V1Target,
)
from chalicelib.contract.v1.machines import (
    V1Claim as V1Claim,
    V1Fleet as V1Fleet,
    V1FleetPage as V1FleetPage,
    V1FleetPlan as V1FleetPlan,
    V1FleetSummary as V1FleetSummary,
    V1PlannedMachines as V1PlannedMachines,
    V1Gpus as V1Gpus,
    V1Health as V1Health,
    V1HealthCheck as V1HealthCheck,
    V1Instance as V1Instance,
    V1InstancePage as V1InstancePage,
    V1Offer as V1Offer,
    V1Offers as V1Offers,
    V1Resources as V1Resources,
    V1Trouble as V1Trouble,
)
from chalicelib.contract.v1.moments import (
    V1FleetThen as V1FleetThen,
    V1InstanceThen as V1InstanceThen,
    V1JobThen as V1JobThen,
    V1Mark as V1Mark,
    V1Marks as V1Marks,
    V1RunThen as V1RunThen,
    V1State as V1State,
)
from chalicelib.contract.v1.people import (
    V1Backend as V1Backend,
    V1Backends as V1Backends,
    V1Caller as V1Caller,
    V1CallerToken as V1CallerToken,
    V1Limits as V1Limits,
    V1Member as V1Member,
    V1MemberPage as V1MemberPage,
    V1NewUser as V1NewUser,
    V1Project as V1Project,
    V1ProjectPage as V1ProjectPage,
    V1Quota as V1Quota,
    V1Secret as V1Secret,
    V1SecretPage as V1SecretPage,
    V1SecretSummary as V1SecretSummary,
    V1Used as V1Used,
    V1User as V1User,
    V1UserPage as V1UserPage,
    V1UserQuota as V1UserQuota,
)
from chalicelib.contract.v1.runs import (
    V1GpuUsage as V1GpuUsage,
    V1Job as V1Job,
    V1JobPage as V1JobPage,
    V1LogLine as V1LogLine,
    V1LogPage as V1LogPage,
    V1Metrics as V1Metrics,
    V1Placement as V1Placement,
    V1PlannedJob as V1PlannedJob,
    V1Replicas as V1Replicas,
    V1Revision as V1Revision,
    V1Revisions as V1Revisions,
    V1Run as V1Run,
    V1RunPage as V1RunPage,
    V1RunPlace as V1RunPlace,
    V1RunPlan as V1RunPlan,
    V1RunSummary as V1RunSummary,
    V1Usage as V1Usage,
)
from chalicelib.contract.v1.services import (
    V1Replica as V1Replica,
    V1ReplicaGroup as V1ReplicaGroup,
    V1Requests as V1Requests,
    V1ScalingRule as V1ScalingRule,
    V1ServedModel as V1ServedModel,
    V1Service as V1Service,
    V1Traffic as V1Traffic,
)
from chalicelib.contract.v1.shared import (
    V1Change as V1Change,
    V1Problem as V1Problem,
    V1ProblemPart as V1ProblemPart,
)
from chalicelib.contract.v1.volumes import (
    V1Attachment as V1Attachment,
    V1Volume as V1Volume,
    V1VolumePage as V1VolumePage,
)
from chalicelib.contract.values import (
    Configuration as Configuration,
    Date as Date,
    GlobalRole as GlobalRole,
    Id as Id,
    PlanAction as PlanAction,
    ProjectRole as ProjectRole,
)
from chalicelib.contract.volumes import (
    AttachedInstance as AttachedInstance,
    AttachmentData as AttachmentData,
    Volume as Volume,
    VolumeAttachment as VolumeAttachment,
    VolumeProvisioningData as VolumeProvisioningData,
    VolumeStatus as VolumeStatus,
)
